package instancestate_test

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/generated"
)

//go:generate go test . -run TestNothingIsLostIsDocumented -update

var update = flag.Bool("update", false, "write the table of sources in docs/losses.md")

// cause is a failure of something that a source depends on.
type cause struct {
	name string
	// does is what the hub does with the events meanwhile, and shows where it shows.
	does, shows string
	// role says that the queue is read with a role, and dead that messages become dead letters
	// within an hour.
	role, dead bool
	// begin lets it fail, and returns how it ends.
	begin func(w *world) (end func())
}

// injected returns how calls of AWS fail.
func injected(rules ...aws.Rule) func(*world) func() {
	return func(w *world) func() {
		var ends []func()
		for _, r := range rules {
			ends = append(ends, w.aws.Inject(r))
		}
		return func() {
			for _, end := range ends {
				end()
			}
		}
	}
}

// answered returns how calls to the API server fail.
func answered(code int, match func(*http.Request) bool) func(*world) func() {
	return func(w *world) func() {
		w.fails(code, match)
		return w.recovers
	}
}

// lists reports whether a call lists, or watches, a resource.
func lists(resources ...string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		for _, resource := range resources {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+resource) {
				return true
			}
		}
		return false
	}
}

const (
	staysInQueue = "stays in the queue"
	isRetried    = "retried by SQS after 5 s, doubled each time up to 15 min; a dead letter after 20 receives (3 h 21 min)"
	isReadAgain  = "applied at once, and delivered again until it can be deleted: after 5 s, doubled each time up to 15 min"

	showsNotReady = "`Ready` False, with the call, the error and the permission; `source_up`; alert `CapstanInstanceSourceDown`"
	showsFailures = "`patch_failures_total`, `messages_total{what=\"retried\"}`, `oldest_seconds`, `status.delivery.oldestWaiting`"
	showsKind     = "`Ready` False, with the kind and the reason; `capstan_management_kind_unreadable`, `ignored_total{reason=\"unread\"}` or `\"unplaced\"`"
)

func causes() []cause {
	receive, remove, change := aws.Match{Service: "sqs", Action: "ReceiveMessage"}, aws.Match{Service: "sqs", Action: "DeleteMessageBatch"}, aws.Match{Service: "sqs", Action: "ChangeMessageVisibilityBatch"}
	all, tokens := aws.Match{Service: "sqs"}, aws.Match{Service: "sts"}
	// The session that was assumed before ends as well.
	over := aws.Rule{Match: all, Fault: sqs.Expired}
	return []cause{
		{name: "SQS denies `ReceiveMessage`", does: staysInQueue, shows: showsNotReady, begin: injected(aws.Rule{Match: receive, Fault: sqs.Denied})},
		{name: "SQS throttles `ReceiveMessage`", does: staysInQueue, shows: showsNotReady + ", from the third time in a row", begin: injected(aws.Rule{Match: receive, Fault: sqs.Throttled})},
		{name: "SQS answers every call with 500", does: staysInQueue, shows: showsNotReady + ", from the third time in a row", begin: injected(aws.Rule{Match: all, Fault: &aws.InternalError})},
		{name: "SQS cuts every connection", does: staysInQueue, shows: showsNotReady + ", from the third time in a row", begin: injected(aws.Rule{Match: all, Cut: true})},
		{name: "the credentials are expired", does: staysInQueue, shows: showsNotReady, begin: injected(over)},
		{name: "the queue does not exist", does: "EventBridge keeps it for its retries, of 24 h by default", shows: showsNotReady, begin: injected(aws.Rule{Match: all, Fault: sqs.Missing})},
		{name: "SQS denies `DeleteMessage`", does: isReadAgain, shows: showsNotReady, begin: injected(aws.Rule{Match: remove, Fault: sqs.Denied})},
		{name: "SQS denies `ChangeMessageVisibility`, and the API server fails", dead: true, does: "delivered again after `visibilityTimeout`, so a dead letter after 20 of them (20 min)", shows: showsNotReady + "; dead letters: `DeadLettersPresent`", begin: func(w *world) func() {
			allow := w.aws.Inject(aws.Rule{Match: change, Fault: sqs.Denied})
			w.fails(http.StatusInternalServerError, labels)
			return func() { allow(); w.recovers() }
		}},
		{name: "STS denies the role", role: true, does: staysInQueue, shows: showsNotReady, begin: injected(aws.Rule{Match: tokens, Fault: &aws.Denied}, over)},
		{name: "STS answers with 500", role: true, does: staysInQueue, shows: showsNotReady, begin: injected(aws.Rule{Match: tokens, Fault: &aws.InternalError}, over)},
		{name: "STS cuts every connection", role: true, does: staysInQueue, shows: showsNotReady, begin: injected(aws.Rule{Match: tokens, Cut: true}, over)},
		{name: "the API server answers patches with 500", does: isRetried, shows: showsFailures, begin: answered(http.StatusInternalServerError, labels)},
		{name: "the API server answers patches with 429", does: isRetried, shows: showsFailures, begin: answered(http.StatusTooManyRequests, labels)},
		{name: "the API server answers patches with 403", does: isRetried, shows: showsFailures, begin: answered(http.StatusForbidden, labels)},
		{name: "the API server answers patches with 409", does: isRetried, shows: showsFailures + ", `conflicts_total`", begin: answered(http.StatusConflict, labels)},
		{name: "the API server answers every call about machines with 503", does: isRetried, shows: showsFailures, begin: answered(http.StatusServiceUnavailable, func(r *http.Request) bool {
			return strings.Contains(r.URL.Path, "/awsmachine")
		})},
		{name: "AWSMachines and AWSMachinePools may not be listed", does: isRetried, shows: showsKind, begin: answered(http.StatusForbidden, lists("awsmachines", "awsmachinepools"))},
		{name: "Clusters and AWSClusters cannot be listed", does: isRetried, shows: showsKind, begin: answered(http.StatusServiceUnavailable, lists("clusters", "awsclusters"))},
	}
}

// times are when a cause lasts.
var times = []string{"at start", "in flight", "for 5 s", "for an hour"}

// Whatever fails, before the start, while events are in flight, for 5 s or for an hour of
// simulated time: no event is lost or becomes a dead letter, and no message is left. `make test`
// tries one time of each cause, and `make soak` all.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	newest.Get(t) // Its processes outlive the subtests.
	for i, c := range causes() {
		for j, when := range times {
			if !soaks() && i%len(times) != j {
				continue
			}
			t.Run(c.name+", "+when, func(t *testing.T) {
				t.Parallel()
				c.lasts(t, when)
			})
		}
	}
}

// lasts lets a cause fail for a time, with events before it, during it and after it.
func (c cause) lasts(t *testing.T, when string) {
	const each = 2
	clock := testclock.NewFakeClock(time.Now())
	w := newWorldAt(t, newest, clock)
	w.options.Clock = clock
	w.usual()
	w.fleet(3 * each)
	if c.role {
		w.events("roleArn", "arn:aws:iam::222222222222:role/hub")
	} else {
		w.events()
	}
	sent := 0
	send := func() {
		for range each {
			w.send("events", stateChange(instanceID(sent), "running", 0))
			sent++
		}
	}
	// passes lets simulated time pass, so slowly that calls end in between.
	passes := func(d time.Duration) {
		for end := clock.Now().Add(d); clock.Now().Before(end); {
			switch s := w.sqs.Stats(region, "events"); {
			case s.InFlight > 0: // It would become visible before its patch has ended.
				w.lasts(5 * time.Millisecond)
				clock.Step(time.Second)
			case s.Visible == 0:
				clock.Step(5 * time.Second)
			default:
				clock.Step(time.Second)
			}
			w.lasts(2 * time.Millisecond)
		}
	}
	labelled := func() int { return w.labels()["running"] }
	var end func()
	var r *replica
	if when == "at start" {
		end = c.begin(w)
		send()
		r = w.start()
		passes(30 * time.Second)
	} else {
		r = w.start()
		w.g.Eventually(func() string { passes(time.Second); return r.reading(w, "events") }).Should(Equal("ready"))
		send()
		if when != "in flight" {
			w.g.Eventually(func() int { passes(time.Second); return labelled() }).Should(Equal(each))
		}
		end = c.begin(w)
		send()
		switch when {
		case "for 5 s":
			passes(5 * time.Second)
		case "for an hour":
			passes(time.Hour)
		}
	}
	if c.shows != showsFailures && strings.HasPrefix(c.shows, "`Ready` False") && when == "at start" {
		w.g.Expect(r.reading(w, "events")).NotTo(Equal("ready"))
	}
	end()
	send()
	dead := 0
	w.g.Eventually(func() string {
		passes(time.Second)
		s := w.sqs.Stats(region, "events")
		dead = len(w.sqs.Bodies(region, "dead"))
		return fmt.Sprintf("%d labelled or dead letters, %d left", labelled()+dead, s.Visible+s.InFlight+s.Delayed)
	}).WithPolling(5 * time.Millisecond).Should(Equal(fmt.Sprintf("%d labelled or dead letters, 0 left", sent)))
	if !c.dead || when != "for an hour" {
		w.g.Expect(dead).To(BeZero())
	}
}

// The table in docs/losses.md has the causes that are tried.
func TestNothingIsLostIsDocumented(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "| cause | an event | where it shows | %s |\n|---|---|---|%s\n", strings.Join(times, " | "), strings.Repeat("---|", len(times)))
	for _, c := range causes() {
		cells := strings.Repeat(" none lost |", len(times))
		if c.dead {
			cells = strings.TrimSuffix(cells, "none lost |") + "dead letters |"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |%s\n", c.name, c.does, c.shows, cells)
	}
	generated.Section(t, "../../docs/losses.md", "losses of sources", strings.TrimSuffix(b.String(), "\n"), *update)
}
