package watchers

import (
	"fmt"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// view is the input of a judgement of one kind of one cluster, at one moment.
type view struct {
	now     time.Time
	place   place // of the whole cluster
	timings Timings
	// connection is the Manager's snapshot of the cluster.
	connection clusters.Snapshot
	// connected: there is a connection; lastContact is when the cluster last answered
	// over it.
	connected   bool
	lastContact time.Time
	// moving: the run that counts is over an older connection.
	moving bool
	// began is when the list under way was needed: see keeperState.
	began time.Time
	// problem is why the last run ended, until another is synced; retryAt is when to work without
	// an event, zero for never.
	problem problem
	retryAt time.Time
	// scopes of the run that counts; unknown where there is none, or it is not planned.
	scopes  scopes
	version string
	// informers in the order of their namespaces.
	informers []informerView
	// wanted are the namespaces of all demands, "" for those of all.
	wanted []string
	// objects that are demanded by name and have an owner.
	objects int
}

// informerView is the part of a view about one informer.
type informerView struct {
	namespace string
	// began is when its initial list began; zero before it.
	began time.Time
	ready bool
	// problem is that of the last call, and failing since when calls fail.
	problem problem
	failing time.Time
	// behind is how long the watch may have missed events.
	behind time.Duration
}

// judgement says what is fresh: the zero problem means fresh.
type judgement struct {
	whole problem
	// namespaces that are not fresh, where the kind is watched by namespace.
	namespaces map[string]problem
}

// resumes returns whether a watch resumes after an outage.
func (j judgement) resumes() bool {
	if j.whole.reason != "" {
		return j.whole.reason == ReasonResuming
	}
	for _, p := range j.namespaces {
		if p.reason == ReasonResuming {
			return true
		}
	}
	return false
}

// judge is pure: it says what is wrong with a kind, and with single namespaces.
func judge(v view) judgement {
	whole, namespaces := v.listing()
	switch p := v.connectionProblem(); {
	case p.reason != "":
		whole = p
	case whole.reason != "":
	case !v.connected || v.now.Sub(v.lastContact) >= v.timings.FreshFor:
		whole = problem{ReasonSilent, fmt.Sprintf("%s has not answered for %s", v.place.cluster, v.timings.FreshFor)}
	}
	return judgement{whole, namespaces}
}

// listing returns the problems of the lists and watches of the kind.
func (v view) listing() (whole problem, namespaces map[string]problem) {
	namespaces = map[string]problem{}
	switch v.scopes {
	case scopesUnknown:
		if v.problem.reason != "" {
			return v.problem, namespaces
		}
		return v.syncing("", v.began), namespaces
	case scopeAll:
		if len(v.informers) == 0 {
			return v.syncing("", v.began), namespaces
		}
		return v.informerProblem(v.informers[0]), namespaces
	case scopeNamespaces:
	}
	present := map[string]bool{}
	for _, i := range v.informers {
		present[i.namespace] = true
		if p := v.informerProblem(i); p.reason != "" {
			namespaces[i.namespace] = p
		}
	}
	for _, namespace := range v.wanted {
		if !present[namespace] {
			namespaces[namespace] = v.syncing(namespace, time.Time{})
		}
	}
	return problem{}, namespaces
}

// informerProblem returns the problem of an informer.
func (v view) informerProblem(i informerView) problem {
	switch {
	case v.fails(i):
		return i.problem
	case !i.ready:
		return v.syncing(i.namespace, i.began)
	case i.behind >= v.timings.FreshFor:
		// After an outage, until the watch has caught up.
		return problem{ReasonResuming, fmt.Sprintf("the watch of %s in %s has not caught up yet", v.place.kind.GroupKind, v.place.cluster)}
	}
	return problem{}
}

// fails returns whether an informer's calls fail. One that is ready may fail for FreshFor,
// as the connection may be silent; a call that is forbidden counts at once.
func (v view) fails(i informerView) bool {
	return i.problem.reason != "" &&
		(!i.ready || i.problem.reason == ReasonForbidden || v.now.Sub(i.failing) >= v.timings.FreshFor)
}

// syncing returns the problem that the initial list is not complete yet, which is normal
// for a while after it began. Before that, the time of began is zero.
func (v view) syncing(namespace string, began time.Time) problem {
	at := v.place
	at.namespace = namespace
	if slow := v.timings.SlowList; !began.IsZero() && v.now.Sub(began) >= slow {
		return problem{ReasonSlow, fmt.Sprintf("the initial list of %s in %s takes longer than %s", at.kind.GroupKind, at, slow)}
	}
	// One message for both, because a change of it wakes Pipelines.
	return problem{ReasonNotSynced, fmt.Sprintf("the initial list of %s in %s is under way, or waits for other lists", at.kind.GroupKind, at)}
}

// connectionProblem returns why nothing of a cluster is fresh; the zero problem if the
// connection is not the reason.
func (v view) connectionProblem() problem {
	cluster, s := v.place.cluster, v.connection
	detail := func(otherwise string) string {
		if s.Message == "" {
			return cluster + " " + otherwise
		}
		return cluster + ": " + s.Message
	}
	switch s.State {
	case capstanv1.ConnectionReady, capstanv1.ConnectionDegraded:
		return problem{}
	case capstanv1.ConnectionUnreachable:
		return problem{ReasonUnreachable, detail("does not answer")}
	case capstanv1.ConnectionAuthFailed:
		return problem{ReasonAuthFailed, detail("does not accept the credentials")}
	case capstanv1.ConnectionRemoved:
		return problem{ReasonRemoved, detail("was removed")}
	case capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting:
	}
	if s.Reason == clusters.ReasonHubUnreadable {
		return problem{ReasonConnecting, detail("cannot be read from the management cluster")}
	}
	// The steps of connecting take milliseconds each, and a change wakes Pipelines.
	return problem{ReasonConnecting, "the hub is connecting to " + cluster}
}

// synced returns whether every informer is ready.
func (v view) synced() bool {
	for _, i := range v.informers {
		if !i.ready {
			return false
		}
	}
	return v.scopes != scopesUnknown && len(v.informers) > 0
}

// watchedKind is pure: it returns what the Manager shows about the kind. A kind that was
// synced and cannot be watched any more is not synced.
func watchedKind(v view) capstanv1.WatchedKind {
	shown := capstanv1.WatchedKind{Kind: v.place.kind.GroupKind.String(), Version: v.version, Synced: v.synced()}
	if p := v.lasting(); p.reason != "" {
		shown.Synced, shown.Reason, shown.Message = false, p.reason, p.message
	} else if !shown.Synced {
		shown.Reason = clusters.ReasonSyncing
	}
	return shown
}

// lasting returns the problem of a kind that does not end by itself soon: of the first namespace in
// which a call fails, or else of the first one whose initial list takes long.
func (v view) lasting() problem {
	if len(v.informers) == 0 {
		whole, _ := v.listing()
		return ifLasting(whole)
	}
	var slow problem
	for _, i := range v.informers {
		switch {
		case v.fails(i):
			return i.problem
		case !i.ready && slow.reason == "":
			slow = ifLasting(v.syncing(i.namespace, i.began))
		}
	}
	return slow
}

// ifLasting returns a problem, or none for an initial list that is under way or waits.
func ifLasting(p problem) problem {
	if p.reason == ReasonNotSynced {
		return problem{}
	}
	return p
}

// due returns when the kind has to be checked again although nothing has changed it; zero for
// never. Until then, time alone changes neither judge nor watchedKind, and every other change is
// an event that makes the loop check the cluster. An answer of a cluster, or the resumption of
// its watch, is no event: where one may come, the kind is due now, which is with the next tick.
// What resumeSilent finds may wait for the end of FreshFor.
func (v view) due() (due time.Time) {
	consider := func(at time.Time) {
		if at.After(v.now) {
			due = sooner(due, at)
		}
	}
	consider(v.retryAt)
	answering := answers(v.connection.State)
	if answering && v.connected {
		silent := v.lastContact.Add(v.timings.FreshFor) // No watch over this connection that ends until then is behind for longer, either.
		if v.moving || !silent.After(v.now) {
			return v.now
		}
		consider(silent)
	}
	if len(v.informers) == 0 && !v.began.IsZero() {
		consider(v.began.Add(v.timings.SlowList))
	}
	for _, i := range v.informers {
		switch {
		case answering && i.ready && i.behind > 0:
			return v.now
		case !i.ready && !i.began.IsZero():
			consider(i.began.Add(v.timings.SlowList))
		}
		if i.problem.reason != "" {
			consider(i.failing.Add(v.timings.FreshFor))
		}
	}
	return due
}

// sooner returns the earlier one of two times, of which zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
