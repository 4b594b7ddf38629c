package promotions

import (
	"encoding/hex"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

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
	// Promotion has what the Promotion has in common with others of its Pipeline, which share
	// it, and what has no field below or does not fit it. It is not changed.
	*capstanv1.Promotion
	// common is shared, too, and not changed.
	common *common
	// rare is nil for most.
	rare *rare

	revision, from, url string
	uid                 [16]byte
	resourceVersion     uint64

	// Numbers are added to those of Promotion, which has them if they do not fit.
	number, sequence, fromSequence, generation, observed, attempt int32
	// numbered means that the name ends with the number: the rest of the name is shared.
	numbered bool
	// managed means that the stored object has managed fields.
	managed bool

	created, started, finished, carriedOut seconds
}

// common is what promotions of a series have in common that ended in the same way.
type common struct {
	// name is without the number that it ends with, if packed.numbered.
	name                string
	labels              map[string]string
	environment, source string
	targets             []string

	phase  capstanv1.PromotionPhase
	reason string
	// message has revisionMark in place of the revision, so that many messages are the same.
	message string
}

func (c *common) equal(o *common) bool {
	return c.name == o.name && c.environment == o.environment && c.source == o.source && c.phase == o.phase && c.reason == o.reason &&
		c.message == o.message && maps.Equal(c.labels, o.labels) && slices.Equal(c.targets, o.targets)
}

// rare is what few promotions have.
type rare struct {
	// annotations record which events were delivered.
	annotations map[string]string
	// approval and approved are of manual promotions.
	approval *capstanv1.Approval
	approved *capstanv1.ApprovalRecord
	// gatesClosed and gatesOpened are of promotions that waited for a gate.
	gatesClosed, gatesOpened *metav1.Time
}

// revisionMark is in no message that the hub writes. One that contains it is not shortened.
const revisionMark = "\x00"

// seconds is a time in seconds since 1970; absent if there is none, or none that fits.
type seconds uint32

const absent seconds = 0

var _ client.Object = &packed{}

// pack takes out of p what packed has fields for, if it can be put back as it was. The rest is the
// same for most promotions of a Pipeline: it is that of the last one if they are equal. Else it is
// in rest, which gets a copy of p: the caller uses another one next time.
func pack(p *capstanv1.Promotion, last *packed, rest *capstanv1.Promotion, known texts) *packed {
	*rest = *p
	k := &packed{revision: known.one(p.Spec.Revision), url: p.Status.URL}
	c := common{labels: p.Labels, environment: p.Spec.Environment, source: p.Spec.Source.Environment, phase: p.Status.Phase, reason: p.Status.Reason}
	if len(p.Annotations) > 0 || p.Spec.Approval != nil || p.Status.Approval != nil || p.Status.GatesCloseTime != nil || p.Status.GatesOpenTime != nil {
		k.rare = &rare{
			annotations: p.Annotations, approval: p.Spec.Approval, approved: p.Status.Approval,
			gatesClosed: p.Status.GatesCloseTime, gatesOpened: p.Status.GatesOpenTime,
		}
	}
	k.managed = len(p.ManagedFields) > 0
	rest.ManagedFields = nil
	rest.Annotations, rest.Spec.Approval, rest.Status.Approval = nil, nil, nil
	rest.Status.GatesCloseTime, rest.Status.GatesOpenTime = nil, nil
	rest.Labels, rest.Spec.Environment, rest.Spec.Source.Environment = nil, "", ""
	rest.Spec.Revision, rest.Status.URL, rest.Status.Phase, rest.Status.Reason = "", "", "", ""
	c.name, k.numbered = strings.CutSuffix(p.Name, strconv.FormatInt(p.Spec.Number, 10))
	rest.Name = ""
	if p.Spec.Revision != "" && !strings.Contains(p.Status.Message, revisionMark) {
		c.message, rest.Status.Message = strings.ReplaceAll(p.Status.Message, p.Spec.Revision, revisionMark), ""
	}
	if id, ok := parseUID(p.UID); ok {
		k.uid, rest.UID = id, ""
	}
	if n, err := strconv.ParseUint(p.ResourceVersion, 10, 64); err == nil && n > 0 && strconv.FormatUint(n, 10) == p.ResourceVersion {
		k.resourceVersion, rest.ResourceVersion = n, ""
	}
	if k.created = secondsOf(&p.CreationTimestamp); k.created != absent {
		rest.CreationTimestamp = metav1.Time{}
	}
	for _, t := range []struct {
		seconds *seconds
		rest    **metav1.Time
	}{{&k.started, &rest.Status.StartTime}, {&k.finished, &rest.Status.FinishTime}, {&k.carriedOut, &rest.Status.CarriedOutTime}} {
		if *t.seconds = secondsOf(*t.rest); *t.seconds != absent {
			*t.rest = nil
		}
	}
	if from := p.Spec.From; from != nil && len(from.Revisions) == 1 && from.Revisions[0] != "" {
		k.from, c.targets = known.one(from.Revisions[0]), from.Targets
		rest.Spec.From = &capstanv1.PromotionBase{Sequence: from.Sequence}
		narrow(&k.fromSequence, &rest.Spec.From.Sequence)
	}
	narrow(&k.number, &rest.Spec.Number)
	narrow(&k.sequence, &rest.Spec.Source.Sequence)
	narrow(&k.generation, &rest.Generation)
	narrow(&k.observed, &rest.Status.ObservedGeneration)
	if a := p.Status.Attempt; a != nil && *a == (capstanv1.Attempt{Number: a.Number}) && a.Number > 0 && a.Number <= math.MaxInt32 {
		k.attempt, rest.Status.Attempt = int32(a.Number), nil //nolint:gosec // It fits.
	}
	k.Promotion, k.common = last.Promotion, last.common
	if k.Promotion == nil || !reflect.DeepEqual(k.Promotion, rest) {
		k.Promotion = rest
		known.share(&rest.Namespace, &rest.Spec.Pipeline.Name, (*string)(&rest.Spec.Pipeline.UID), &rest.Spec.App.APIVersion, &rest.Spec.App.Kind, &rest.Spec.App.Name)
	}
	if k.common == nil || !c.equal(k.common) {
		k.common = known.copyOf(c)
	}
	return k
}

// Unchanged returns whether an update of a cached Promotion that is settled has nothing that its
// readers use: only its version differs, and whether it has managed fields.
func Unchanged(before, after client.Object) bool {
	a, settledBefore := before.(*packed)
	b, settledAfter := after.(*packed)
	if !settledBefore || !settledAfter {
		return false
	}
	same := *a
	same.resourceVersion, same.managed = b.resourceVersion, b.managed
	return reflect.DeepEqual(&same, b)
}

// narrow moves a number that fits.
func narrow(into *int32, from *int64) {
	if small := int32(*from); int64(small) == *from { //nolint:gosec // The comparison shows an overflow.
		*into, *from = small, 0
	}
}

// texts are texts that several Promotions have, so that each is kept once.
type texts map[string]string

// maxTexts bounds how many texts are known. Beyond it all are forgotten: a text is shared with
// later Promotions only. A list has the Promotions of a Pipeline one after the other.
const maxTexts = 10000

// one returns the known text that is the same.
func (t texts) one(text string) string {
	if same, ok := t[text]; ok || text == "" {
		return same
	}
	if len(t) >= maxTexts {
		clear(t)
	}
	text = strings.Clone(text) // It may be a part of a longer one.
	t[text] = text
	return text
}

func (t texts) share(all ...*string) {
	for _, text := range all {
		*text = t.one(*text)
	}
}

// copyOf returns a copy with known texts.
func (t texts) copyOf(c common) *common {
	t.share(&c.name, &c.environment, &c.source, (*string)(&c.phase), &c.reason, &c.message)
	if labels := c.labels; labels != nil {
		c.labels = make(map[string]string, len(labels))
		for key, value := range labels {
			c.labels[t.one(key)] = t.one(value)
		}
	}
	return &c
}

// whole returns the Promotion. It shares no memory that a reader may change.
func (k *packed) whole() *capstanv1.Promotion {
	p, c := k.Promotion.DeepCopy(), k.common
	p.Name, p.Labels, p.Spec.Environment, p.Spec.Source.Environment = k.GetName(), maps.Clone(c.labels), c.environment, c.source
	p.Spec.Revision, p.Status.URL, p.Status.Phase, p.Status.Reason = k.revision, k.url, c.phase, c.reason
	if c.message != "" {
		p.Status.Message = strings.ReplaceAll(c.message, revisionMark, k.revision)
	}
	if k.rare != nil {
		p.Annotations, p.Spec.Approval, p.Status.Approval = maps.Clone(k.rare.annotations), k.rare.approval.DeepCopy(), k.rare.approved.DeepCopy()
		p.Status.GatesCloseTime, p.Status.GatesOpenTime = k.rare.gatesClosed.DeepCopy(), k.rare.gatesOpened.DeepCopy()
	}
	p.UID, p.ResourceVersion, p.CreationTimestamp = k.GetUID(), k.GetResourceVersion(), k.GetCreationTimestamp()
	p.Spec.Number += int64(k.number)
	p.Spec.Source.Sequence += int64(k.sequence)
	p.Generation += int64(k.generation)
	p.Status.ObservedGeneration += int64(k.observed)
	for _, t := range []struct {
		seconds seconds
		into    **metav1.Time
	}{{k.started, &p.Status.StartTime}, {k.finished, &p.Status.FinishTime}, {k.carriedOut, &p.Status.CarriedOutTime}} {
		if t.seconds != absent {
			at := t.seconds.time()
			*t.into = &at
		}
	}
	if k.attempt != 0 {
		p.Status.Attempt = &capstanv1.Attempt{Number: int64(k.attempt)}
	}
	if k.managed {
		p.ManagedFields = slices.Clone(someManagedFields)
	}
	if k.from != "" {
		p.Spec.From.Revisions, p.Spec.From.Targets = []string{k.from}, slices.Clone(c.targets)
		p.Spec.From.Sequence += int64(k.fromSequence)
	}
	return p
}

// DeepCopyObject implements runtime.Object. It returns a *capstanv1.Promotion.
func (k *packed) DeepCopyObject() runtime.Object { return k.whole() }

// GetName implements metav1.Object.
func (k *packed) GetName() string {
	if !k.numbered {
		return k.common.name
	}
	return k.common.name + strconv.FormatInt(k.Promotion.Spec.Number+int64(k.number), 10)
}

// GetLabels implements metav1.Object.
func (k *packed) GetLabels() map[string]string { return k.common.labels }

// GetAnnotations implements metav1.Object.
func (k *packed) GetAnnotations() map[string]string {
	if k.rare == nil {
		return nil
	}
	return k.rare.annotations
}

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
	return k.created.time()
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

// SettledTime returns when a Promotion from an event of a cache, which may be packed, ended; false
// if the object is none, or not settled (Settled).
func SettledTime(o client.Object) (time.Time, bool) {
	switch o := o.(type) {
	case *capstanv1.Promotion:
		if Settled(o) {
			return o.Status.FinishTime.Time, true
		}
	case *packed:
		if o.finished != absent {
			return o.finished.time().Time, true
		}
		return o.Promotion.Status.FinishTime.Time, true
	}
	return time.Time{}, false
}

// secondsOf returns a time in seconds; absent if it has parts of a second, or is before 1970 or
// after 2106.
func secondsOf(t *metav1.Time) seconds {
	if t == nil || t.IsZero() || t.Nanosecond() != 0 || t.Unix() <= 0 || t.Unix() > math.MaxUint32 {
		return absent
	}
	return seconds(t.Unix()) //nolint:gosec // It fits.
}

func (s seconds) time() metav1.Time { return metav1.Unix(int64(s), 0) }

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
