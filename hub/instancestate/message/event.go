package message

import (
	"encoding/json"
)

// EventBridgeEvent is an event as EventBridge delivers it.
type EventBridgeEvent struct {
	Version    string          `json:"version"`
	ID         string          `json:"id"`
	DetailType string          `json:"detail-type"`
	Source     string          `json:"source"`
	Account    string          `json:"account"`
	Time       string          `json:"time"`
	Region     string          `json:"region"`
	Resources  []string        `json:"resources"`
	Detail     json.RawMessage `json:"detail"`
}

// UnmarshalJSON implements json.Unmarshaler. AWS documents events whose resources are
// one string, not a list.
func (e *EventBridgeEvent) UnmarshalJSON(raw []byte) error {
	type plain EventBridgeEvent
	var read struct {
		plain
		Resources json.RawMessage `json:"resources"`
	}
	if err := json.Unmarshal(raw, &read); err != nil {
		return err
	}
	*e = EventBridgeEvent(read.plain)
	e.Resources = nil
	var one string
	switch {
	case len(read.Resources) == 0:
	case json.Unmarshal(read.Resources, &one) == nil:
		if one != "" {
			e.Resources = []string{one}
		}
	default:
		return json.Unmarshal(read.Resources, &e.Resources)
	}
	return nil
}
