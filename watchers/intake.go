package watchers

import (
	"errors"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/watchers/decode"
)

// The limits of what a cluster may send. A cluster's tenant, or a server that is no API server,
// must not exhaust the hub's memory or CPU time.

const (
	// maxListed is the largest size of a list of a workload cluster, in bytes. Its objects are
	// reduced one by one, so this limits time, not memory. 10,000 HelmReleases of 8 KiB are 80 MiB.
	maxListed = 512 << 20
	// maxStored is how many bytes an informer stores of a workload cluster, by the estimate of
	// storedBytes. 20,000 applications need 50 MiB.
	maxStored = 64 << 20

	// eventsPerSecond and eventBurst are for one kind of a workload cluster, after its
	// initial list. A sender that is faster waits. The burst is one change of each of
	// maxObjects objects.
	eventsPerSecond = 1000
	eventBurst      = maxObjects

	// maxLabel is the longest name of an API version or of a resource.
	maxLabel = 63
)

var (
	// errTooMany: a cluster holds more objects than the hub stores.
	errTooMany = errors.New("too many objects")
	// errListed: a list is larger than maxListed.
	errListed = errors.New("the list is too large")
	// errStored: the objects need more than maxStored.
	errStored = errors.New("the objects need too much memory")
)

// exceeds returns whether an error means that a cluster exceeds a limit.
func exceeds(err error) bool {
	return errors.Is(err, errTooMany) || errors.Is(err, errListed) || errors.Is(err, errStored) || decode.Exceeds(err)
}

// limits of one kind of one cluster.
type limits struct {
	// objects, and bytes of a list and of what is stored of them.
	objects        int
	listed, stored int64
}

// limitsIn returns the limits of a cluster. Those of the management cluster, which the
// administrator of the hub is responsible for, follow from the number of objects.
func (o *Options) limitsIn(local bool) limits {
	if local {
		return limits{o.MaxLocalObjects, int64(o.MaxLocalObjects) * (maxListed / maxObjects), int64(o.MaxLocalObjects) * (maxStored / maxObjects)}
	}
	return limits{o.MaxObjects, maxListed, maxStored}
}

// tally counts what one initial list delivers.
type tally struct {
	limits       limits
	objects      int
	read, stored int64
}

// add counts an object that was read as a number of bytes. The error is of the limit that it
// exceeds.
func (t *tally) add(o client.Object, read int) error {
	t.objects++
	t.read += int64(read)
	t.stored += storedBytes(o)
	switch {
	case t.objects > t.limits.objects:
		return errTooMany
	case t.read > t.limits.listed:
		return errListed
	case t.stored > t.limits.stored:
		return errStored
	}
	return nil
}

// arrivals are the objects of a watch: reduced, counted and paced. What client-go stores of an
// initial list is counted by nothing else before the list is complete.
type arrivals struct {
	// reduce makes the stored form of an object.
	reduce func(*unstructured.Unstructured) client.Object
	// listed counts the initial list; nil after it, and for a watch without one.
	listed *tally
	// pace of the events after the initial list.
	pace *pace
}

// accept implements decode.Accept.
func (a *arrivals) accept(kind watch.EventType, u *unstructured.Unstructured, read int) (runtime.Object, error) {
	if kind == watch.Bookmark {
		if u.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			a.listed = nil
		}
		return u, nil
	}
	reduced := a.reduce(u)
	if a.listed != nil {
		return reduced, a.listed.add(reduced, read)
	}
	a.pace.wait()
	return reduced, nil
}

const (
	// identityBytes of an object without its texts, and of its entry in a store.
	identityBytes = 512
	// typedBytes of an object of a Go type. Such types keep texts of limited length.
	typedBytes = 2560
	// valueBytes of a value in a map or slice, without its text or elements.
	valueBytes = 48
)

// storedBytes estimates the memory that a stored object uses.
func storedBytes(o client.Object) int64 {
	switch of := o.(type) {
	case *key:
		return int64(identityBytes + len(of.Namespace) + len(of.Name) + len(of.UID) + len(of.ResourceVersion))
	case *unstructured.Unstructured:
		return identityBytes + bytesOf(of.Object)
	}
	return typedBytes
}

// bytesOf estimates the memory of a decoded JSON value.
func bytesOf(value any) int64 {
	sum := int64(valueBytes)
	switch v := value.(type) {
	case string:
		sum += int64(len(v))
	case map[string]any:
		for name, field := range v {
			sum += int64(len(name)) + bytesOf(field)
		}
	case []any:
		for _, element := range v {
			sum += bytesOf(element)
		}
	}
	return sum
}

// pace limits the events of one kind of a workload cluster. The management cluster has no
// limit; its pace is nil.
type pace struct {
	clock   clock.Clock
	limiter *rate.Limiter
}

func newPace(c clock.Clock) *pace {
	return &pace{clock: c, limiter: rate.NewLimiter(eventsPerSecond, eventBurst)}
}

// wait waits until another event may be read: a few milliseconds at most. While it waits, the
// sender waits, too.
func (p *pace) wait() {
	if p == nil {
		return
	}
	now := p.clock.Now()
	if wait := p.limiter.ReserveN(now, 1).DelayFrom(now); wait > 0 {
		<-p.clock.After(wait)
	}
}
