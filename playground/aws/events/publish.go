package events

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/internal/wire"
)

// awsSource is the prefix of the sources of events of AWS itself.
const awsSource = "aws."

// maxEntries of PutEvents.
const maxEntries = 10

// Event of AWS, for Publish.
type Event struct {
	// Account and Region of the bus.
	Account, Region string
	// ID of the event; a new UUID when empty.
	ID string
	// Source such as aws.ec2, and DetailType such as "EC2 Instance State-change Notification".
	Source, DetailType string
	Time               time.Time
	// Resources are ARNs.
	Resources []string
	// Detail is encoded as a JSON object.
	Detail any
}

// Publish puts an event of AWS itself on the bus of an account and region, and delivers it.
// It returns the event's id. Errors: the Detail is not a JSON object.
func (s *Service) Publish(e Event) (string, error) {
	detail, err := json.Marshal(e.Detail)
	if err == nil {
		err = json.Unmarshal(detail, &map[string]any{})
	}
	if err != nil {
		return "", fmt.Errorf("the detail of event %q: %w", e.DetailType, err)
	}
	return s.publish(e, detail)
}

func (s *Service) publish(e Event, detail json.RawMessage) (string, error) {
	e.ID = cmp.Or(e.ID, uuid.NewString())
	if e.Resources == nil {
		e.Resources = []string{}
	}
	body, err := json.Marshal(map[string]any{
		"version": "0", "id": e.ID, "detail-type": e.DetailType, "source": e.Source, "account": e.Account, "region": e.Region,
		"time": e.Time.UTC().Format(time.RFC3339), "resources": e.Resources, "detail": detail,
	})
	if err != nil {
		return "", err
	}
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		return "", err
	}
	at := place{e.Account, e.Region}
	for _, d := range s.match(at, fields) {
		s.deliver(at, d, string(body))
	}
	return e.ID, nil
}

// delivery of an event to a target.
type delivery struct {
	rule   string
	target target
}

// match returns the targets of all enabled rules that match an event, sorted.
func (s *Service) match(at place, event map[string]any) []delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []delivery
	for _, name := range slices.Sorted(maps.Keys(s.rules[at])) {
		r := s.rules[at][name]
		if r.State != enabled || !r.pattern.matches(event) {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(r.targets)) {
			all = append(all, delivery{r.Arn, r.targets[id]})
		}
	}
	return all
}

type putEntry struct {
	Source, DetailType, Detail, EventBusName string
	Resources                                []string
	Time                                     *float64
}

type putResult struct {
	EventID      string `json:"EventId,omitempty"`
	ErrorCode    string `json:",omitempty"`
	ErrorMessage string `json:",omitempty"`
}

func (s *Service) putEvents(c *aws.Call) (any, *aws.Fault) {
	var in struct{ Entries []putEntry }
	if fault := decode(c, &in); fault != nil {
		return nil, fault
	}
	if len(in.Entries) == 0 || len(in.Entries) > maxEntries {
		return nil, wire.Bad("ValidationException", "1 validation error detected: Value at 'entries' failed to satisfy constraint: Member must have length between 1 and %d", maxEntries)
	}
	results, failures := []putResult{}, 0
	for _, e := range in.Entries {
		result := s.put(c, e)
		if result.ErrorCode != "" {
			failures++
		}
		results = append(results, result)
	}
	return map[string]any{"FailedEntryCount": failures, "Entries": results}, nil
}

func (s *Service) put(c *aws.Call, e putEntry) putResult {
	missing := func(name string) putResult {
		return putResult{ErrorCode: "InvalidArgument", ErrorMessage: "Parameter " + name + " is not valid. Reason: " + name + " is a required argument."}
	}
	switch {
	case e.Source == "":
		return missing("Source")
	case e.DetailType == "":
		return missing("DetailType")
	case e.Detail == "":
		return missing("Detail")
	case strings.HasPrefix(e.Source, awsSource):
		return putResult{ErrorCode: "NotAuthorizedForSourceException", ErrorMessage: "Not authorized for the source."}
	case bus(e.EventBusName) != nil:
		return putResult{ErrorCode: "ResourceNotFoundException", ErrorMessage: bus(e.EventBusName).Message}
	case json.Unmarshal([]byte(e.Detail), &map[string]any{}) != nil:
		return putResult{ErrorCode: "MalformedDetail", ErrorMessage: "Detail is malformed."}
	}
	at := c.Server.Clock().Now()
	if e.Time != nil {
		at = time.UnixMilli(int64(*e.Time * float64(time.Second/time.Millisecond)))
	}
	id, err := s.publish(Event{
		Account: c.Account, Region: c.Region, Source: e.Source, DetailType: e.DetailType, Time: at, Resources: e.Resources,
	}, json.RawMessage(e.Detail))
	if err != nil {
		return putResult{ErrorCode: "InternalFailure", ErrorMessage: err.Error()}
	}
	return putResult{EventID: id}
}
