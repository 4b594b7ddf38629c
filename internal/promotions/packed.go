package promotions

import (
	"encoding/hex"
	"maps"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// packed is a settled Promotion in the store of a cache. It needs less than half of the
// memory. Readers of the cache get a Promotion: the cache copies what it returns, with
// DeepCopyObject. Handlers of events and indexes get it from Whole.
type packed struct {
	// Promotion has what the Promotion has in common with others of its series, which share
	// it, and what has no field below or does not fit it. It is not changed.
	*capstanv1.Promotion

	revision, from, url string
	// message has revisionMark in place of the revision, so that many messages are the same.
	message         string
	phase           capstanv1.PromotionPhase
	reason          string
	uid             [16]byte
	resourceVersion uint64
	// created, started, finished and carriedOut are seconds since 1970; absent if the
	// Promotion does not have that time.
	created, started, finished, carriedOut int64

	number, sequence, fromSequence int64
	generation, observed, attempt  int32
	// numbered means that the name ends with the number: the rest of the name is shared.
	numbered bool
	// annotations record which events were delivered.
	annotations map[string]string
	// approval and approved are of manual promotions.
	approval *capstanv1.Approval
	approved *capstanv1.ApprovalRecord
}

// revisionMark is in no message that the hub writes. One that contains it is not shortened.
const revisionMark = "\x00"

// absent is the time that an object does not have, or that does not fit seconds.
const absent = math.MinInt64

var _ client.Object = &packed{}

// pack takes out of a copy of p what packed has fields for, if it can be put back as it was.
// The rest is the same for most promotions of a series: it is that of the last one if they are
// equal.
func pack(p *capstanv1.Promotion, last *packed) *packed {
	rest := *p
	k := &packed{
		revision: p.Spec.Revision, url: p.Status.URL, phase: p.Status.Phase, reason: p.Status.Reason,
		number: p.Spec.Number, sequence: p.Spec.Source.Sequence, approval: p.Spec.Approval, approved: p.Status.Approval,
		annotations: p.Annotations,
	}
	rest.Annotations = nil
	rest.Spec.Revision, rest.Status.URL, rest.Status.Phase, rest.Status.Reason = "", "", "", ""
	rest.Spec.Number, rest.Spec.Source.Sequence, rest.Spec.Approval, rest.Status.Approval = 0, 0, nil, nil
	rest.Name, k.numbered = strings.CutSuffix(p.Name, strconv.FormatInt(p.Spec.Number, 10))
	if p.Spec.Revision != "" && !strings.Contains(p.Status.Message, revisionMark) {
		k.message, rest.Status.Message = strings.ReplaceAll(p.Status.Message, p.Spec.Revision, revisionMark), ""
	}
	if id, ok := parseUID(p.UID); ok {
		k.uid, rest.UID = id, ""
	}
	if n, err := strconv.ParseUint(p.ResourceVersion, 10, 64); err == nil && n > 0 && strconv.FormatUint(n, 10) == p.ResourceVersion {
		k.resourceVersion, rest.ResourceVersion = n, ""
	}
	k.created = absent
	if seconds := secondsOf(&p.CreationTimestamp); !p.CreationTimestamp.IsZero() && seconds != absent {
		k.created, rest.CreationTimestamp = seconds, metav1.Time{}
	}
	for _, t := range []struct {
		seconds *int64
		rest    **metav1.Time
	}{{&k.started, &rest.Status.StartTime}, {&k.finished, &rest.Status.FinishTime}, {&k.carriedOut, &rest.Status.CarriedOutTime}} {
		if *t.seconds = secondsOf(*t.rest); *t.seconds != absent {
			*t.rest = nil
		}
	}
	for _, n := range []struct {
		small *int32
		rest  *int64
	}{{&k.generation, &rest.Generation}, {&k.observed, &rest.Status.ObservedGeneration}} {
		if *n.rest == int64(int32(*n.rest)) { //nolint:gosec // The comparison shows an overflow.
			*n.small, *n.rest = int32(*n.rest), 0 //nolint:gosec // It fits.
		}
	}
	if a := p.Status.Attempt; a != nil && *a == (capstanv1.Attempt{Number: a.Number}) && a.Number > 0 && a.Number <= math.MaxInt32 {
		k.attempt, rest.Status.Attempt = int32(a.Number), nil //nolint:gosec // It fits.
	}
	if from := p.Spec.From; from != nil && len(from.Revisions) == 1 && from.Revisions[0] != "" {
		k.from, k.fromSequence = from.Revisions[0], from.Sequence
		rest.Spec.From = &capstanv1.PromotionBase{Targets: from.Targets}
	}
	k.Promotion = last.Promotion
	if k.Promotion == nil || !equality.Semantic.DeepEqual(k.Promotion, &rest) {
		k.Promotion = &rest
	}
	k.phase = shared(k.phase, last.phase)
	k.reason = shared(k.reason, last.reason)
	k.from = shared(k.from, last.revision)
	k.revision = shared(k.revision, last.revision)
	k.message = shared(k.message, last.message)
	return k
}

// shared returns the other string if it has the same text, so that the text is kept once.
func shared[S ~string](one, other S) S {
	if one == other {
		return other
	}
	return one
}

// whole returns the Promotion. It shares no memory that a reader may change.
func (k *packed) whole() *capstanv1.Promotion {
	p := k.Promotion.DeepCopy()
	p.Name, p.Spec.Revision, p.Status.URL, p.Status.Phase, p.Status.Reason = k.GetName(), k.revision, k.url, k.phase, k.reason
	if k.message != "" {
		p.Status.Message = strings.ReplaceAll(k.message, revisionMark, k.revision)
	}
	p.Spec.Number, p.Spec.Source.Sequence = k.number, k.sequence
	p.Spec.Approval, p.Status.Approval = k.approval.DeepCopy(), k.approved.DeepCopy()
	p.UID, p.ResourceVersion, p.CreationTimestamp, p.Generation = k.GetUID(), k.GetResourceVersion(), k.GetCreationTimestamp(), k.GetGeneration()
	p.Annotations = maps.Clone(k.annotations)
	p.Status.ObservedGeneration += int64(k.observed)
	for _, t := range []struct {
		seconds int64
		into    **metav1.Time
	}{{k.started, &p.Status.StartTime}, {k.finished, &p.Status.FinishTime}, {k.carriedOut, &p.Status.CarriedOutTime}} {
		if t.seconds != absent {
			at := metav1.Unix(t.seconds, 0)
			*t.into = &at
		}
	}
	if k.attempt != 0 {
		p.Status.Attempt = &capstanv1.Attempt{Number: int64(k.attempt)}
	}
	if k.from != "" {
		p.Spec.From.Revisions, p.Spec.From.Sequence = []string{k.from}, k.fromSequence
	}
	return p
}

// DeepCopyObject implements runtime.Object. It returns a *capstanv1.Promotion.
func (k *packed) DeepCopyObject() runtime.Object { return k.whole() }

// GetName implements metav1.Object.
func (k *packed) GetName() string {
	if !k.numbered {
		return k.Promotion.Name
	}
	return k.Promotion.Name + strconv.FormatInt(k.number, 10)
}

// GetAnnotations implements metav1.Object.
func (k *packed) GetAnnotations() map[string]string { return k.annotations }

// GetUID implements metav1.Object.
func (k *packed) GetUID() types.UID {
	if k.uid == ([16]byte{}) {
		return k.Promotion.UID
	}
	return formatUID(k.uid)
}

// GetResourceVersion implements metav1.Object.
func (k *packed) GetResourceVersion() string {
	if k.resourceVersion == 0 {
		return k.Promotion.ResourceVersion
	}
	return strconv.FormatUint(k.resourceVersion, 10)
}

// GetCreationTimestamp implements metav1.Object.
func (k *packed) GetCreationTimestamp() metav1.Time {
	if k.created == absent {
		return k.Promotion.CreationTimestamp
	}
	return metav1.Unix(k.created, 0)
}

// GetGeneration implements metav1.Object.
func (k *packed) GetGeneration() int64 { return k.Promotion.Generation + int64(k.generation) }

// Whole returns a Promotion from an event of a cache, which may be packed; false if the object
// is none.
func Whole(o client.Object) (*capstanv1.Promotion, bool) {
	switch o := o.(type) {
	case *capstanv1.Promotion:
		return o, true
	case *packed:
		return o.whole(), true
	default:
		return nil, false
	}
}

// PipelineOf returns the name of the Pipeline of a Promotion from a cache, which may be packed;
// false if the object is none.
func PipelineOf(o client.Object) (types.NamespacedName, bool) {
	var p *capstanv1.Promotion
	switch o := o.(type) {
	case *capstanv1.Promotion:
		p = o
	case *packed:
		p = o.Promotion
	default:
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Pipeline.Name}, true
}

// secondsOf returns a time in seconds since 1970; absent if there is none, or if it has parts
// of a second.
func secondsOf(t *metav1.Time) int64 {
	if t == nil || t.Nanosecond() != 0 {
		return absent
	}
	return t.Unix()
}

// uidLength is that of the text of a UUID (RFC 9562, section 4).
const uidLength = 36

// parseUID returns the bytes of a UID that formatUID writes again as it is.
func parseUID(uid types.UID) (id [16]byte, ok bool) {
	if len(uid) != uidLength {
		return id, false
	}
	digits := uid[0:8] + uid[9:13] + uid[14:18] + uid[19:23] + uid[24:]
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil || id == ([16]byte{}) || formatUID(id) != uid {
		return [16]byte{}, false
	}
	return id, true
}

func formatUID(id [16]byte) types.UID {
	text := make([]byte, uidLength)
	at := 0
	for _, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if at > 0 {
			text[at] = '-'
			at++
		}
		at += hex.Encode(text[at:], part)
	}
	return types.UID(text)
}
