package index

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// LocalCluster is the name of the management cluster. clusters.Ref.ClusterName returns
// the other names, such as "Cluster/team/prod".
const LocalCluster = ""

// Kind of an application. It has no version, because each cluster may serve another one.
type Kind struct{ Group, Kind string }

// Object is an application in a cluster.
type Object struct {
	Cluster   string
	Kind      Kind
	Namespace string
	Name      string
}

// Observation is the observed state of an application.
type Observation struct {
	// Found is false when the kind is synced and the object does not exist.
	Found bool
	// Ready is whether the application is ready at Revision.
	Ready bool
	// Progressing is whether its controller is at work on it and has not judged it yet: Ready is
	// Unknown, or is of an earlier generation. It is never set with Ready.
	Progressing bool
	// Revision that the application runs, normalised ("6.6.1"); empty for none.
	Revision string
	// Digest of an OCI chart, which is not part of Revision; empty for none.
	Digest string
	// Reason and Message say why the application is not ready; empty when there is no
	// problem. Reason is that of the application's own condition Ready, or ReasonNoRevision; it is
	// empty if the application gives none, and for what the hub found itself.
	Reason, Message string
	// At is when these values were first observed.
	At time.Time
	// Since is the time that the observation is not older than: the list of its watch, or a read of
	// the object, began then. What happened since may not be delivered yet.
	Since time.Time
}

// ReasonNoRevision is the Reason of an application that is Ready and does not say which revision
// it runs.
const ReasonNoRevision = "NoRevision"

// Why returns Reason and Message as one text.
func (o Observation) Why() string {
	switch {
	case o.Reason == "":
		return o.Message
	case o.Message == "":
		return o.Reason
	}
	return o.Reason + ": " + o.Message
}

// equal ignores At and Since: when something was observed is not a change of it.
func (o Observation) equal(p Observation) bool {
	o.At, p.At, o.Since, p.Since = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return o == p
}

// Freshness says whether decisions may use the observations of a kind in a cluster.
type Freshness struct {
	Fresh bool
	// Reason in one word, and a message for users, when they are not fresh.
	Reason, Message string
}

// NotWatched is the reason of a kind whose Freshness was not set.
const NotWatched = "NotWatched"

// Use contains the clusters and applications that a Pipeline uses.
type Use struct {
	// Refs are the declared cluster references, resolved or not, as cluster names.
	Refs []string
	// Objects are the applications whose cluster reference was resolved.
	Objects []Object
	// Promoted says of each of Objects whether the Pipeline promotes revisions into it.
	Promoted []bool
}

// promotes returns whether the Pipeline promotes revisions into an application.
func (u Use) promotes(o Object) bool {
	for i, used := range u.Objects {
		if used == o && u.promotesAt(i) {
			return true
		}
	}
	return false
}

func (u Use) promotesAt(i int) bool { return i < len(u.Promoted) && u.Promoted[i] }

// Rival is another Pipeline that promotes revisions into the same application.
type Rival struct {
	Object   Object
	Pipeline types.NamespacedName
}

// Stats are the numbers of entries in the index.
type Stats struct {
	Pipelines, Objects, Observations int
}

// place is a kind in a cluster.
type place struct {
	cluster string
	kind    Kind
}

// name of an application, in its cluster.
type name struct{ namespace, name string }

// application is what is known of an application.
type application struct {
	// users are the Pipelines that use it; never empty.
	users keys
	// last is the last observation, if observed is set.
	last     Observation
	observed bool
	// unread is why it cannot be read, although its kind can; nil if it can.
	unread *Freshness
}

// keys is a set of Pipelines, sorted. Most sets have one Pipeline, and a map with one key is
// ten times as large.
type keys []types.NamespacedName

// with returns the set with a Pipeline. It may modify the receiver.
func (k keys) with(key types.NamespacedName) keys {
	at, had := slices.BinarySearchFunc(k, key, compare)
	if had {
		return k
	}
	return slices.Insert(k, at, key)
}

// without returns the set without a Pipeline. It may modify the receiver.
func (k keys) without(key types.NamespacedName) keys {
	at, had := slices.BinarySearchFunc(k, key, compare)
	if !had {
		return k
	}
	return slices.Delete(k, at, at+1)
}
