package message

import (
	"encoding/json"
	"strings"
	"time"
)

type healthDetail struct {
	EventARN        string `json:"eventArn"`
	Service         string `json:"service"`
	Category        string `json:"eventTypeCategory"`
	TypeCode        string `json:"eventTypeCode"`
	CommunicationID string `json:"communicationId"`
	StatusCode      string `json:"statusCode"`
	Start           string `json:"startTime"`
	End             string `json:"endTime"`
	Region          string `json:"eventRegion"`
	Account         string `json:"affectedAccount"`
	Entities        []struct {
		Value      string `json:"entityValue"`
		Status     string `json:"status"`
		StatusCode string `json:"statusCode"`
	} `json:"affectedEntities"`
}

const (
	// resolved is the status of an entity, and closed that of an event, that is over: AWS has done
	// the scheduled change or cancelled it.
	resolved = "RESOLVED"
	closed   = "closed"
	// maxChange is how many bytes of an event's ARN are kept.
	maxChange = 256
)

// over reports whether a status of an event or entity says that it is over.
func over(status string) bool {
	return strings.EqualFold(status, closed) || strings.EqualFold(status, resolved)
}

// change identifies the event: by its ARN or, without one, by its type and start.
func (h healthDetail) change() string {
	if h.EventARN == "" {
		return cut(h.TypeCode + "/" + h.Start)
	}
	return cut(h.EventARN)
}

// cut returns a text that is not too long to keep, or its digest.
func cut(text string) string {
	if len(text) > maxChange {
		return digest([]byte(text))
	}
	return text
}

// health decodes an event of AWS Health. The envelope only has the region and account of
// the delivery, which may be the backup region and the organization's account. The detail
// has the affected ones.
func (d decoder) health(e EventBridgeEvent) (Message, error) {
	var detail healthDetail
	if err := json.Unmarshal(e.Detail, &detail); err != nil {
		return Message{}, malformed("%s: %w", e.DetailType, err)
	}
	switch {
	case detail.Service == "" || detail.Category == "":
		return Message{}, malformed("%s without service or eventTypeCategory", e.DetailType)
	case detail.Service != HealthService:
		return ignore(HealthOther, "service"), nil
	case detail.Category != HealthCategory:
		return ignore(HealthOther, "category"), nil
	}
	if err := short(detail.CommunicationID, detail.Account, detail.Region); err != nil {
		return Message{}, err
	}
	var facts []Fact
	seen := map[string]int{} // id of an instance → its fact
	for _, entity := range detail.Entities {
		id := EntityInstance(entity.Value)
		if !instanceID.MatchString(id) {
			continue
		}
		f := d.maintenance(e, detail, id, over(detail.StatusCode) || over(entity.Status) || over(entity.StatusCode))
		at, again := seen[id]
		switch {
		case !again:
			seen[id] = len(facts)
			facts = append(facts, f)
		case !f.Over:
			facts[at] = f // A part of it is still to come.
		}
	}
	if len(facts) == 0 {
		return ignore(ScheduledChange, "no-instances"), nil
	}
	return apply(facts...), nil
}

// EntityInstance returns the id of an instance from the value of an affected entity, which
// is an id or an ARN. For other entities the result is no id of an instance.
func EntityInstance(value string) string {
	return value[strings.LastIndexByte(value, '/')+1:]
}

func (d decoder) maintenance(e EventBridgeEvent, detail healthDetail, id string, ended bool) Fact {
	f := d.fact(e, ScheduledChange, LabelMaintenance, rankMaintenance)
	f.InstanceID, f.Change, f.Over = id, detail.change(), ended
	if ended {
		f.Rank = rankMaintenanceEnd
	}
	if detail.Account != "" {
		f.Account = detail.Account
	}
	if detail.Region != "" {
		f.Region = detail.Region
	}
	// The backup region's copy of an event has another id, and the same communication.
	if detail.CommunicationID != "" {
		f.ID = f.Account + "/" + detail.CommunicationID
	}
	f.detail("eventTypeCode", detail.TypeCode)
	if at, err := time.Parse(time.RFC1123, detail.Start); err == nil {
		if !ended {
			f.Deadline = at.UTC()
		}
		f.detail("start", at.UTC().Format(time.RFC3339))
	}
	if at, err := time.Parse(time.RFC1123, detail.End); err == nil {
		f.detail("end", at.UTC().Format(time.RFC3339))
	}
	return f
}
