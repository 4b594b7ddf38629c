package view

import "fmt"

// Aspects of the health of a cluster, in the order of the columns.
const (
	aspectConnection = iota
	aspectApplications
	aspectNodes
	aspectInstances
	aspectCredential
	aspects
)

// aspectNames are the names of the aspects, for users.
var aspectNames = [aspects]string{"Connection", "Applications", "Nodes", "Instances", "Credential"}

// Aspect is one aspect of the health of a cluster.
type Aspect struct {
	Name string
	Mark Mark
	// Note has the figures behind the Mark, or the reason; empty if there is nothing to say.
	Note string
}

// Health of a cluster: its aspects in the order of aspectNames.
type Health [aspects]Aspect

// Worst is the aspect with the worst state; the first one of several.
func (h Health) Worst() Aspect {
	worst := h[aspectConnection]
	for _, a := range h {
		if a.Mark.Tone < worst.Mark.Tone {
			worst = a
		}
	}
	return worst
}

// Mark of the cluster. It is good only if all aspects that are known are. A cluster that nothing is wrong with is in the
// state of its connection.
func (h Health) Mark() Mark {
	if worst := h.Worst(); worst.Mark.Tone < Good {
		return worst.Mark
	}
	return h[aspectConnection].Mark
}

// limit makes an aspect say that nothing is visible, if nothing is there and the viewer may not see everything.
func (h *Health) limit(aspect int, complete bool) {
	if a := &h[aspect]; !complete && a.Mark.Word == wordNone {
		a.Mark.Word = wordNoneVisible
	}
}

// well reports whether nothing is wrong with the cluster.
func (h Health) well() bool { return h.Worst().Mark.Tone >= Busy }

// Words of the aspects that are not well; the states of the filter of clusters, with those of the connection and of the credential.
const (
	appsFail, appsStale, appsNotReady, promotionsFailed = "Applications fail", "Applications stale", "Applications not ready", "Promotions failed"
	noNodeReady, nodesMissing, annotationProblem        = "No node ready", "Nodes missing", "Annotation problem"
	instancesFail, instancesLeave                       = "Instances fail", "Instances leave"
	notConnected, notVisible                            = "Not connected", "Not visible to you"
	wordNone, wordNoneVisible                           = "None", "None visible"
)

// clusterWords are the states of the filter of clusters, worst first.
var clusterWords = []string{
	"Unreachable", "Auth failed", appsFail, noNodeReady, instancesFail, credentialExpired, credentialDay, credentialLate, "Stale", "Unknown", appsStale,
	"Degraded", appsNotReady, promotionsFailed, nodesMissing, annotationProblem, instancesLeave, credentialWeek, credentialSoon,
	"Connecting", "Ready", "Unused", "Removed", notConnected, notVisible,
}

func applicationsAspect(a Apps, m Moves) Aspect {
	is := Aspect{Name: aspectNames[aspectApplications], Mark: Mark{Idle, wordNone}}
	if a.Total > 0 {
		is.Note = fmt.Sprintf("%d of %d ready", a.Ready, a.Total)
	}
	switch {
	case a.Failing > 0:
		is.Mark = Mark{Bad, appsFail}
	case a.Stale > 0:
		is.Mark, is.Note = Mark{Stale, appsStale}, fmt.Sprintf("%d of %d ready, %d stale", a.Ready, a.Total, a.Stale)
	case a.Unready > 0:
		is.Mark = Mark{Warning, appsNotReady}
	case m.Failed > 0:
		is.Mark, is.Note = Mark{Warning, promotionsFailed}, Plural(m.Failed, "promotion")+" failed or rejected"
	case a.Total > 0:
		is.Mark = Mark{Good, "Ready"}
	}
	return is
}

func nodesAspect(n Nodes) Aspect {
	is := Aspect{Name: aspectNames[aspectNodes], Mark: Mark{Idle, wordNone}}
	switch {
	case n.Groups == 0:
		return is
	case n.Desired == 0:
		is.Mark, is.Note = Mark{Good, "Scaled to zero"}, Plural(n.Groups, "group")+", scaled to zero"
	default:
		is.Mark, is.Note = Mark{Good, "Ready"}, fmt.Sprintf("%d of %d ready in %s", n.Ready, n.Desired, Plural(n.Groups, "group"))
	}
	switch {
	case n.Empty > 0:
		is.Mark, is.Note = Mark{Bad, noNodeReady}, is.Note+", "+Plural(n.Empty, "group")+" without a ready node"
	case n.Ready < n.Desired:
		is.Mark = Mark{Warning, nodesMissing}
	case n.Problems > 0:
		is.Mark, is.Note = Mark{Warning, annotationProblem}, is.Note+", "+Plural(n.Problems, "group")+" with a problem of the annotations"
	}
	return is
}

func instancesAspect(n Nodes) Aspect {
	is := Aspect{Name: aspectNames[aspectInstances], Mark: Mark{Idle, wordNone}}
	if n.Instances > 0 {
		is.Mark, is.Note = Mark{Good, "Running"}, Plural(n.Instances, "machine")
	}
	switch {
	case n.Failing > 0:
		is.Mark, is.Note = Mark{Bad, instancesFail}, fmt.Sprintf("%d of %s", n.Failing+n.Leaving, is.Note)
	case n.Leaving > 0:
		is.Mark, is.Note = Mark{Warning, instancesLeave}, fmt.Sprintf("%d of %s", n.Leaving, is.Note)
	}
	return is
}
