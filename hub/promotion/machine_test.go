//go:build !race

package promotion

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/pipeline"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/watchers"
)

// The machine runs the real reconcilers of Pipelines and Promotions one call at a time. The
// API server and the receiver of notifications are linearisable: each call takes effect at
// one moment, and the search (search_test.go) decides what happens between two calls.
//
// A reconcile is a function of what it has read. So a reconcile in progress is the list of the
// answers that it received: to continue it, the machine runs it again from its start with
// these answers, up to the next call. Objects, lists and reconciles in progress have numbers
// by content, so each reconcile runs once for each list of answers, and the search compares
// numbers.

type (
	// objectID is an object of certain content; it is also its resourceVersion. 0 is no object.
	objectID uint32
	// listID is a list of objects; 0 is the empty list.
	listID uint32
	// runID is a reconcile in progress; 0 is none.
	runID uint32
)

// call is what a reconcile wants to do next, outside its process.
type call struct {
	kind callKind
	// name of the Promotion that is read.
	name string
	// object that is created, or to which a status is written; based on the version base.
	object, base objectID
	// act that the receiver gets.
	act act
}

type callKind uint8

const (
	// finished: the reconcile has ended.
	finished callKind = iota
	getPipeline
	getPromotion
	listPromotions
	create
	writeStatus
	sendAct
)

// act is a notification at the receiver.
type act struct {
	environment, revision, identity string
	number                          int64
}

// answer of a call.
type answer struct {
	object objectID
	list   listID
	kind   answerKind
}

type answerKind uint8

const (
	succeeded answerKind = iota
	notFound
	conflict
	exists
)

// start is what a reconcile has at its start: the caches of its process.
type start struct {
	hub       uint8
	pipeline  objectID
	list      listID
	seen      [clusterCount]uint8
	clock     uint8
	observed  bool
	promotion string // Name; empty for the reconcile of the Pipeline.
}

// run is a reconcile in progress.
type run struct {
	start   *start
	answers []answer
	next    call
	// read is the Pipeline that was last read uncached, and claimed the one that had been
	// read when the attempt was claimed.
	read, claimed objectID
	err           error
}

type machine struct {
	objects   []client.Object
	byContent map[string]objectID
	lists     [][]objectID
	byObjects map[string]listID
	runs      []run
	byStart   map[start]runID
	byAnswer  map[runID]map[answer]runID
	// reconciles counts the executions of the real reconcilers.
	reconciles int

	clock      *testclock.FakeClock
	pipelines  map[[clusterCount]uint8]*pipeline.Reconciler
	promotions [hubCount]*Reconciler
	script     script
}

const (
	hubCount = 2
	// clusterCount is the number of clusters: one for each environment.
	clusterCount = 3
)

var (
	// epoch is the time at clock 0.
	epoch = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	// key of the Pipeline.
	key = types.NamespacedName{Namespace: "shop", Name: "web"}
	// clusterNames in the order of the observations.
	clusterNames = [clusterCount]string{"dev", "staging", "prod"}
	// revisions by number.
	revisions = []string{"1.0", "1.1", "1.2"}
	helm      = schema.GroupKind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}
)

// pastClaim is longer than an attempt blocks others.
const pastClaim = time.Minute

func newMachine() *machine {
	utilruntime.PanicHandlers = nil // A reconcile is left by a panic, which is not an error.
	outcomeBackoff = wait.Backoff{Steps: outcomeBackoff.Steps, Duration: time.Nanosecond}
	m := &machine{
		objects: []client.Object{nil}, byContent: map[string]objectID{},
		lists: [][]objectID{nil}, byObjects: map[string]listID{"": 0},
		runs: []run{{}}, byStart: map[start]runID{}, byAnswer: map[runID]map[answer]runID{},
		clock: testclock.NewFakeClock(epoch), pipelines: map[[clusterCount]uint8]*pipeline.Reconciler{},
	}
	m.script.machine = m
	for i := range m.promotions {
		m.promotions[i] = New(Options{
			Client: cached{&m.script}, APIReader: uncached{&m.script},
			Observed:   func(types.NamespacedName, types.UID) ([]string, bool) { return nil, m.script.start.observed },
			Strategies: strategy.Registry{&receiver{&m.script}},
			Holder:     "hub-" + strconv.Itoa(i), Recorder: noEvents{}, Clock: m.clock,
			StallAfter: 365 * 24 * time.Hour,
		})
	}
	return m
}

// intern returns the number of an object.
func (m *machine) intern(o client.Object) objectID {
	o = o.DeepCopyObject().(client.Object)
	o.SetResourceVersion("")
	content, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	text := fmt.Sprintf("%T%s", o, content)
	if id, ok := m.byContent[text]; ok {
		return id
	}
	id := objectID(len(m.objects))
	o.SetResourceVersion(strconv.Itoa(int(id)))
	m.objects = append(m.objects, o)
	m.byContent[text] = id
	return id
}

func (m *machine) pipeline(id objectID) *pipelinesv1.Pipeline {
	if id == 0 {
		return nil
	}
	return m.objects[id].(*pipelinesv1.Pipeline)
}

func (m *machine) promotion(id objectID) *capstanv1.Promotion {
	return m.objects[id].(*capstanv1.Promotion)
}

// list returns the number of a list, sorted by name.
func (m *machine) list(ids []objectID) listID {
	slices.SortFunc(ids, func(a, b objectID) int {
		return strings.Compare(m.objects[a].GetName(), m.objects[b].GetName())
	})
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%d,", id)
	}
	if id, ok := m.byObjects[b.String()]; ok {
		return id
	}
	id := listID(len(m.lists))
	m.lists = append(m.lists, slices.Clone(ids))
	m.byObjects[b.String()] = id
	return id
}

// find returns a Promotion of a list by name; 0 for none.
func (m *machine) find(list listID, name string) objectID {
	for _, id := range m.lists[list] {
		if m.objects[id].GetName() == name {
			return id
		}
	}
	return 0
}

// with returns a list with an object added, or replaced if it has one of the name.
func (m *machine) with(list listID, id objectID) listID {
	ids := slices.DeleteFunc(slices.Clone(m.lists[list]), func(other objectID) bool {
		return m.objects[other].GetName() == m.objects[id].GetName()
	})
	return m.list(append(ids, id))
}

// begin returns the reconcile with these caches, after its local steps.
func (m *machine) begin(s start) runID {
	if id, ok := m.byStart[s]; ok {
		return id
	}
	id := m.execute(&s, nil, run{})
	m.byStart[s] = id
	return id
}

// proceed returns the reconcile after an answer.
func (m *machine) proceed(id runID, a answer) runID {
	after := m.byAnswer[id]
	if next, ok := after[a]; ok {
		return next
	}
	if after == nil {
		after = map[answer]runID{}
		m.byAnswer[id] = after
	}
	r := m.runs[id]
	next := m.execute(r.start, append(slices.Clone(r.answers), a), r)
	after[a] = next
	return next
}

// execute runs the reconciler with answers, up to its next call.
func (m *machine) execute(s *start, answers []answer, before run) runID {
	m.reconciles++
	m.clock.SetTime(epoch.Add(time.Duration(s.clock) * pastClaim))
	m.script.start, m.script.answers, m.script.position, m.script.next = s, answers, 0, call{}
	err := m.reconcile(s)
	r := run{start: s, answers: answers, next: m.script.next, read: before.read, claimed: before.claimed, err: err}
	if len(answers) > 0 {
		last := answers[len(answers)-1]
		switch before.next.kind {
		case getPipeline:
			r.read = last.object
		case writeStatus:
			if s.promotion != "" && last.kind == succeeded {
				r.claimed = r.read
			}
		case finished, getPromotion, listPromotions, create, sendAct:
		}
	}
	m.runs = append(m.runs, r)
	return runID(len(m.runs) - 1)
}

// suspended is the value of the panic that leaves a reconcile at its next call.
type suspended struct{}

func (m *machine) reconcile(s *start) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(suspended); !ok {
				panic(r)
			}
		}
	}()
	ctx := log.IntoContext(context.Background(), logr.Discard())
	if s.promotion == "" {
		_, err = m.ofPipelines(s.seen).Reconcile(ctx, ctrl.Request{NamespacedName: key})
		return err
	}
	_, err = m.promotions[s.hub].Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: s.promotion}})
	return err
}

// ofPipelines returns a reconciler of Pipelines that has made certain observations.
func (m *machine) ofPipelines(seen [clusterCount]uint8) *pipeline.Reconciler {
	if r, ok := m.pipelines[seen]; ok {
		return r
	}
	x := index.New()
	use := index.Use{}
	for _, cluster := range clusterNames {
		use.Objects = append(use.Objects, objectIn(cluster))
	}
	// Another Pipeline uses the same applications, so that no edit makes the index forget them.
	x.SetPipeline(types.NamespacedName{Name: "other"}, use)
	for i, o := range use.Objects {
		x.SetFreshness(o.Cluster, o.Kind, index.Freshness{Fresh: true})
		x.Observe(o, index.Observation{Found: true, Ready: true, Revision: revisions[seen[i]], At: epoch})
	}
	r := pipeline.New(pipeline.Options{
		Client: cached{&m.script}, APIReader: uncached{&m.script}, Clusters: anywhere{}, Watchers: anywhere{}, Index: x,
		AppKinds: []schema.GroupKind{helm}, Recorder: noEvents{}, Clock: m.clock,
	})
	m.pipelines[seen] = r
	return r
}

func objectIn(cluster string) index.Object {
	return index.Object{
		Cluster: string(clusters.Ref{Kind: "Cluster", Namespace: key.Namespace, Name: cluster}.ClusterName()),
		Kind:    index.Kind{Group: helm.Group, Kind: helm.Kind}, Namespace: key.Namespace, Name: key.Name,
	}
}

// anywhere resolves every reference, and ignores demand.
type anywhere struct{}

func (anywhere) Resolve(ref clusters.Ref) (multicluster.ClusterName, error) {
	return ref.ClusterName(), nil
}
func (anywhere) Select(string, string, labels.Selector) ([]clusters.Ref, error) { return nil, nil }
func (anywhere) Labels(clusters.Ref) (labels.Set, error)                        { return nil, clusters.ErrNotFound }
func (anywhere) WaitForObjects(context.Context) error                           { return nil }
func (anywhere) SetDemand(string, []watchers.Demand)                            {}
func (anywhere) Confirm(watchers.Demand)                                        {}

func (anywhere) SetDemands(map[string][]watchers.Demand) {}

type noEvents struct{}

func (noEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// script gives the answers to the calls of one execution. At the first call without an answer
// it leaves the reconcile.
type script struct {
	machine  *machine
	start    *start
	answers  []answer
	position int
	next     call
}

func (s *script) do(c call) answer {
	if s.position == len(s.answers) {
		s.next = c
		panic(suspended{})
	}
	a := s.answers[s.position]
	s.position++
	return a
}

var (
	pipelineResource  = pipelinesv1.GroupVersion.WithResource("pipelines").GroupResource()
	promotionResource = capstanv1.GroupVersion.WithResource("promotions").GroupResource()
)

// into copies an object of the machine into that of a caller.
func (s *script) into(id objectID, o client.Object) error {
	switch to := o.(type) {
	case *pipelinesv1.Pipeline:
		if id == 0 {
			return apierrors.NewNotFound(pipelineResource, key.Name)
		}
		s.machine.pipeline(id).DeepCopyInto(to)
	case *capstanv1.Promotion:
		if id == 0 {
			return apierrors.NewNotFound(promotionResource, "")
		}
		s.machine.promotion(id).DeepCopyInto(to)
	default:
		panic(fmt.Sprintf("a read of %T", o))
	}
	return nil
}

func (s *script) fill(list listID, into client.ObjectList) error {
	switch l := into.(type) {
	case *capstanv1.PromotionList:
		for _, id := range s.machine.lists[list] {
			l.Items = append(l.Items, *s.machine.promotion(id).DeepCopy())
		}
	case *capstanv1.PromotionWindowList, *capstanv1.PromotionRequestList: // There are none.
	case *pipelinesv1.PipelineList: // The first reconcile of a process passes on all demand.
	default:
		panic(fmt.Sprintf("a list of %T", into))
	}
	return nil
}

// cached is the client of a hub: it reads from the caches and writes to the API server.
type cached struct{ *script }

func (c cached) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if _, ok := o.(*pipelinesv1.Pipeline); ok {
		return c.into(c.start.pipeline, o)
	}
	return c.into(c.machine.find(c.start.list, k.Name), o)
}

func (c cached) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	return c.fill(c.start.list, l)
}

func (c cached) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	p := o.(*capstanv1.Promotion).DeepCopy()
	p.UID = types.UID("uid-" + p.Name)
	p.Generation = 1
	p.CreationTimestamp = metav1.NewTime(c.machine.clock.Now())
	id := c.machine.intern(p)
	if c.do(call{kind: create, object: id}).kind == exists {
		return apierrors.NewAlreadyExists(promotionResource, p.Name)
	}
	return c.into(id, o)
}

func (c cached) Status() client.SubResourceWriter { return statusWriter{script: c.script} }

// statusWriter writes a status. Both reconcilers write it with the resourceVersion that they
// read, so the patch has the same effect as the whole object.
type statusWriter struct {
	client.SubResourceWriter
	*script
}

func (w statusWriter) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	metadata, raw := o.(*metav1.PartialObjectMetadata)
	whole := o
	if raw {
		whole = w.patched(metadata, patch)
	}
	base, err := strconv.Atoi(whole.GetResourceVersion())
	if err != nil {
		panic(err)
	}
	id := w.machine.intern(whole)
	switch w.do(call{kind: writeStatus, object: id, base: objectID(base), name: o.GetName()}).kind {
	case conflict:
		return apierrors.NewConflict(promotionResource, o.GetName(), fmt.Errorf("the object has been modified"))
	case notFound:
		return apierrors.NewNotFound(promotionResource, o.GetName())
	case succeeded, exists:
	}
	if raw {
		metadata.SetResourceVersion(strconv.Itoa(int(id)))
		return nil
	}
	return w.into(id, o)
}

// patched is a Pipeline of the resourceVersion in a JSON patch, with the patch.
func (w statusWriter) patched(metadata *metav1.PartialObjectMetadata, patch client.Patch) client.Object {
	content, err := patch.Data(metadata)
	if err != nil {
		panic(err)
	}
	operations, err := jsonpatch.DecodePatch(content)
	if err != nil {
		panic(err)
	}
	of := ""
	for _, o := range operations {
		if path, _ := o.Path(); path == "/metadata/resourceVersion" {
			version, _ := o.ValueInterface()
			of, _ = version.(string)
		}
	}
	base, err := strconv.Atoi(of)
	if err != nil {
		panic(err)
	}
	document, err := json.Marshal(w.machine.pipeline(objectID(base)))
	if err != nil {
		panic(err)
	}
	if document, err = operations.Apply(document); err != nil {
		panic(err)
	}
	p := &pipelinesv1.Pipeline{}
	if err := json.Unmarshal(document, p); err != nil {
		panic(err)
	}
	return p
}

// The other methods of a client are not used.
func (cached) Update(context.Context, client.Object, ...client.UpdateOption) error { panic("update") }
func (cached) Delete(context.Context, client.Object, ...client.DeleteOption) error { panic("delete") }
func (cached) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	panic("patch")
}
func (cached) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	panic("apply")
}
func (cached) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	panic("delete all")
}
func (cached) SubResource(string) client.SubResourceClient { panic("subresource") }
func (cached) Scheme() *runtime.Scheme                     { panic("scheme") }
func (cached) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	panic("kind")
}
func (cached) IsObjectNamespaced(runtime.Object) (bool, error) { panic("scope") }
func (cached) RESTMapper() meta.RESTMapper                     { panic("mapper") }

// uncached reads from the API server.
type uncached struct{ *script }

func (u uncached) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c := call{kind: getPipeline}
	if _, ok := o.(*capstanv1.Promotion); ok {
		c = call{kind: getPromotion, name: k.Name}
	}
	return u.into(u.do(c).object, o)
}

func (u uncached) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	if _, ok := l.(*capstanv1.PromotionWindowList); ok {
		return nil // There are none. Windows of the Pipeline are judged by the same code.
	}
	return u.fill(u.do(call{kind: listPromotions}).list, l)
}

// receiver is a strategy that sends notifications.
type receiver struct{ *script }

func (*receiver) Name() string                        { return "notification" }
func (*receiver) Handles(s pipelinesv1.Strategy) bool { return s.Notification != nil }
func (*receiver) Deadline() time.Duration             { return pastClaim / 2 }
func (r *receiver) Promote(ctx context.Context, p *capstanv1.Promotion, permit strategy.Permit) (strategy.Result, error) {
	if err := permit(ctx, strategy.StepNotify); err != nil {
		return strategy.Result{}, err
	}
	r.do(call{kind: sendAct, name: p.Name, act: act{p.Spec.Environment, p.Spec.Revision, strategy.Identity(p), p.Status.Attempt.Number}})
	return strategy.Result{State: strategy.Done, Message: "sent"}, nil
}
