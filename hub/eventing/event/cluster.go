package event

import (
	"strings"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// Cluster is the data of events of clusters.
type Cluster struct {
	Kind              string     `json:"kind" jsonschema:"kind of the object that the credentials belong to: Cluster, GitopsCluster, Secret or ClusterProfile"`
	Namespace         string     `json:"namespace" jsonschema:"namespace of that object"`
	Name              string     `json:"name" jsonschema:"name of that object"`
	State             string     `json:"state,omitempty" jsonschema:"state of the connection"`
	PreviousState     string     `json:"previousState,omitempty" jsonschema:"the last published state, if the hub has one"`
	Reason            string     `json:"reason,omitempty" jsonschema:"reason for the state, in CamelCase"`
	Message           string     `json:"message,omitempty" jsonschema:"explanation of the reason"`
	KubernetesVersion string     `json:"kubernetesVersion,omitempty" jsonschema:"Kubernetes version of the API server"`
	CredentialExpiry  *time.Time `json:"credentialExpiry,omitempty" jsonschema:"when the credentials expire, if known"`
}

// ClusterRegistered returns the event that a ClusterConnection was created.
func (h Hub) ClusterRegistered(c *capstanv1.ClusterConnection) ce.Event {
	return h.cluster(c, ClusterRegistered, c.CreationTimestamp.Time, "", clusterData(c))
}

// ClusterState returns the event of the present state of a connection. published is the
// last published state; empty when there is none. It returns false for a state that was
// already published, and for a connection that is unused or still connecting.
func (h Hub) ClusterState(c *capstanv1.ClusterConnection, published capstanv1.ConnectionState) (ce.Event, bool) {
	k := stateKind(c.Status.State, published)
	if k == "" || c.Status.State == published || c.Status.LastTransitionTime == nil {
		return ce.Event{}, false
	}
	data := clusterData(c)
	data.State, data.PreviousState = string(c.Status.State), string(published)
	data.Reason, data.Message = c.Status.Reason, cut(c.Status.Message)
	// Ready and recovered are one transition of the object. The kind depends on the state
	// that the caller remembers; the id does not.
	at := c.Status.LastTransitionTime.Time
	return h.cluster(c, k, at, string(c.Status.State)+" "+stamp(at), data), true
}

// stateKind is the kind for a state; empty for a state without an event.
func stateKind(state, published capstanv1.ConnectionState) Kind {
	switch state {
	case capstanv1.ConnectionReady:
		switch published {
		case capstanv1.ConnectionDegraded, capstanv1.ConnectionUnreachable, capstanv1.ConnectionAuthFailed:
			return ClusterRecovered
		case "", capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting, capstanv1.ConnectionReady, capstanv1.ConnectionRemoved:
		}
		return ClusterReady
	case capstanv1.ConnectionDegraded:
		return ClusterDegraded
	case capstanv1.ConnectionUnreachable:
		return ClusterUnreachable
	case capstanv1.ConnectionAuthFailed:
		return ClusterAuthFailed
	case capstanv1.ConnectionRemoved:
		return ClusterRemoved
	case "", capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting:
	}
	return ""
}

// ClusterCredentialsRotated returns the event that the expiry of the credentials has
// changed; at is when the hub observed it. It returns false when the expiry is unknown.
func (h Hub) ClusterCredentialsRotated(c *capstanv1.ClusterConnection, at time.Time) (ce.Event, bool) {
	if c.Status.CredentialExpiryTime == nil {
		return ce.Event{}, false
	}
	return h.cluster(c, ClusterCredentialsRotated, at, stamp(c.Status.CredentialExpiryTime.Time), clusterData(c)), true
}

// ClusterCredentialsExpiring returns the event that the credentials expire within lead;
// false before that. Its time is lead before the expiry.
func (h Hub) ClusterCredentialsExpiring(c *capstanv1.ClusterConnection, lead time.Duration, now time.Time) (ce.Event, bool) {
	if c.Status.CredentialExpiryTime == nil || now.Before(c.Status.CredentialExpiryTime.Add(-lead)) {
		return ce.Event{}, false
	}
	end := c.Status.CredentialExpiryTime.Time
	return h.cluster(c, ClusterCredentialsExpiring, end.Add(-lead), stamp(end), clusterData(c)), true
}

func (h Hub) cluster(c *capstanv1.ClusterConnection, k Kind, at time.Time, transition string, data Cluster) ce.Event {
	ref := c.Spec.ClusterRef
	e := h.event(details{
		kind: k, object: string(c.UID), transition: transition, at: at,
		subject:   strings.Join([]string{"clusters", ref.Kind, ref.Namespace, ref.Name}, "/"),
		partition: ref.Namespace + "/" + ref.Name, data: data,
	})
	if k == ClusterRecovered {
		e.SetID(h.id(details{kind: ClusterReady, object: string(c.UID), transition: transition}))
	}
	return e
}

func clusterData(c *capstanv1.ClusterConnection) Cluster {
	ref := c.Spec.ClusterRef
	data := Cluster{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, KubernetesVersion: c.Status.KubernetesVersion}
	if c.Status.CredentialExpiryTime != nil {
		end := second(c.Status.CredentialExpiryTime.Time)
		data.CredentialExpiry = &end
	}
	return data
}
