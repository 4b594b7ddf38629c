package event

import (
	"strings"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// Cluster is the data of events of clusters.
type Cluster struct {
	Kind              string     `json:"kind" jsonschema:"kind of the object that the credentials belong to: Cluster or GitopsCluster"`
	Namespace         string     `json:"namespace" jsonschema:"its namespace"`
	Name              string     `json:"name" jsonschema:"its name"`
	State             string     `json:"state,omitempty" jsonschema:"state of the connection"`
	PreviousState     string     `json:"previousState,omitempty" jsonschema:"the state that was told before, if the hub remembers one"`
	Reason            string     `json:"reason,omitempty" jsonschema:"reason for the state, in one word"`
	Message           string     `json:"message,omitempty" jsonschema:"the same for people"`
	KubernetesVersion string     `json:"kubernetesVersion,omitempty" jsonschema:"version that the API server reports"`
	CredentialExpiry  *time.Time `json:"credentialExpiry,omitempty" jsonschema:"when the credentials end, where that can be told"`
}

// ClusterRegistered tells that the hub was asked to connect to a cluster.
func (h Hub) ClusterRegistered(c *capstanv1.ClusterConnection) ce.Event {
	return h.cluster(c, ClusterRegistered, c.CreationTimestamp.Time, "", clusterData(c))
}

// ClusterState tells of the present state of a connection; told is the one that was
// told before, empty for none. There is nothing to tell of the state that was told, of
// a connection that nobody demands, and of one of which nothing is known yet.
func (h Hub) ClusterState(c *capstanv1.ClusterConnection, told capstanv1.ConnectionState) (ce.Event, bool) {
	k := stateKind(c.Status.State, told)
	if k == "" || c.Status.State == told || c.Status.LastTransitionTime == nil {
		return ce.Event{}, false
	}
	data := clusterData(c)
	data.State, data.PreviousState = string(c.Status.State), string(told)
	data.Reason, data.Message = c.Status.Reason, cut(c.Status.Message)
	// Ready and recovered are one edge of the object: which it is called depends on
	// what the caller remembers, who it is does not.
	at := c.Status.LastTransitionTime.Time
	return h.cluster(c, k, at, string(c.Status.State)+" "+stamp(at), data), true
}

// stateKind is the kind for a state; empty when there is nothing to tell of it.
func stateKind(state, told capstanv1.ConnectionState) Kind {
	switch state {
	case capstanv1.ConnectionReady:
		switch told {
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

// ClusterCredentialsRotated tells that the credentials have another end than before;
// at is when the hub saw it. Without an end there is nothing to tell.
func (h Hub) ClusterCredentialsRotated(c *capstanv1.ClusterConnection, at time.Time) (ce.Event, bool) {
	if c.Status.CredentialExpiryTime == nil {
		return ce.Event{}, false
	}
	return h.cluster(c, ClusterCredentialsRotated, at, stamp(c.Status.CredentialExpiryTime.Time), clusterData(c)), true
}

// ClusterCredentialsExpiring tells that the credentials end within lead of their end;
// false before that. Its time is lead before the end.
func (h Hub) ClusterCredentialsExpiring(c *capstanv1.ClusterConnection, lead time.Duration, now time.Time) (ce.Event, bool) {
	if c.Status.CredentialExpiryTime == nil || now.Before(c.Status.CredentialExpiryTime.Add(-lead)) {
		return ce.Event{}, false
	}
	end := c.Status.CredentialExpiryTime.Time
	return h.cluster(c, ClusterCredentialsExpiring, end.Add(-lead), stamp(end), clusterData(c)), true
}

func (h Hub) cluster(c *capstanv1.ClusterConnection, k Kind, at time.Time, transition string, data Cluster) ce.Event {
	ref := c.Spec.ClusterRef
	e := h.event(news{
		kind: k, object: string(c.UID), transition: transition, at: at,
		subject:   strings.Join([]string{"clusters", ref.Kind, ref.Namespace, ref.Name}, "/"),
		partition: ref.Namespace + "/" + ref.Name, data: data,
	})
	if k == ClusterRecovered {
		e.SetID(h.id(news{kind: ClusterReady, object: string(c.UID), transition: transition}))
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
