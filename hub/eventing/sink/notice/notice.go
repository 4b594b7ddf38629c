package notice

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"

	"github.com/capstan-hub/capstan/hub/eventing/event"
)

// Notice is an event as text for people.
type Notice struct {
	// ID of the event.
	ID string
	// Kind of the event, such as promotion.waiting.v1.
	Kind event.Kind
	// Severity is info, warning or error.
	Severity event.Severity
	// Title says in one line what happened to which object.
	Title string
	// Text explains it; empty when the event has no explanation. It may have several lines.
	Text string
	// Reason in CamelCase; empty when the event has none.
	Reason string
	// Subject is the subject of the event, such as pipelines/shop/web.
	Subject string
	Time    time.Time
	// Promotion is the data of an event of a promotion; nil for all other events.
	Promotion *event.Promotion
	// URL of the Pipeline's page in the dashboard, and ApproveURL of the page where a user
	// approves the promotion; empty without the address of the dashboard. ApproveURL is set only
	// for a promotion that waits for an approval.
	URL, ApproveURL string
	// PullRequestURL is the address of the pull request of a promotion that has one.
	PullRequestURL string
}

// titles of the events of promotions. The rest of the line names the revision, the Pipeline and
// the environment.
var titles = map[event.Kind]string{ //nolint:exhaustive // Only events of promotions have one.
	event.PromotionDetected:   "Promotion created",
	event.PromotionRolledBack: "Rollback created",
	event.PromotionBlocked:    "Promotion blocked by a gate",
	event.PromotionUnblocked:  "All gates open",
	event.PromotionVerifying:  "Verification started",
	event.PromotionOverridden: "Gate overridden",
	event.PromotionWaiting:    "Approval required",
	event.PromotionApproved:   "Promotion approved",
	event.PromotionStarted:    "Promotion started",
	event.PromotionStalled:    "Promotion stalled",
	event.PromotionSucceeded:  "Promotion succeeded",
	event.PromotionFailed:     "Promotion failed",
	event.PromotionRejected:   "Promotion rejected",
	event.PromotionSuperseded: "Promotion superseded",
}

// explained is what the data of most kinds of events have in common.
type explained struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Of returns the Notice of an event. dashboard is the external address of the dashboard; empty
// when it is not known.
func Of(e ce.Event, dashboard string) (Notice, error) {
	kind := event.KindOf(e)
	entry, known := event.EntryOf(kind)
	if !known {
		return Notice{}, fmt.Errorf("event %s has type %q, which is not in the catalogue of events", e.ID(), e.Type())
	}
	n := Notice{ID: e.ID(), Kind: kind, Severity: entry.Severity, Subject: e.Subject(), Time: e.Time()}
	var data explained
	if err := json.Unmarshal(e.Data(), &data); err != nil {
		return Notice{}, fmt.Errorf("the data of event %s of type %q is not JSON: %w", e.ID(), e.Type(), err)
	}
	n.Reason, n.Text = data.Reason, data.Message
	if title, of := titles[kind]; of {
		return n.promotion(e, title, dashboard)
	}
	n.Title = n.Subject + ": " + entry.When
	return n, nil
}

// promotion completes the Notice of an event of a promotion.
func (n Notice) promotion(e ce.Event, title, dashboard string) (Notice, error) {
	p := &event.Promotion{}
	if err := json.Unmarshal(e.Data(), p); err != nil {
		return Notice{}, fmt.Errorf("the data of event %s of type %q is not that of a promotion: %w", e.ID(), e.Type(), err)
	}
	n.Promotion, n.PullRequestURL = p, p.PullRequestURL
	n.Title = fmt.Sprintf("%s: %s of pipeline %s/%s into %s", title, p.Revision, p.Namespace, p.Pipeline, p.ToEnvironment)
	if p.Actor != "" {
		n.Title += " by " + p.Actor
	}
	if dashboard != "" {
		n.URL = page(dashboard, "pipelines", p.Namespace, p.Pipeline)
		if n.Kind == event.PromotionWaiting {
			n.ApproveURL = page(dashboard, "promotions", p.Namespace, p.Promotion, "approve")
		}
	}
	return n, nil
}

// page returns the address of a page of the dashboard.
func page(dashboard string, parts ...string) string {
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.TrimRight(dashboard, "/") + "/" + strings.Join(parts, "/")
}
