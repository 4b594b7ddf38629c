package event

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

var update = flag.Bool("update", false, "write generated documents and golden files instead of checking them")

var (
	hub   = Hub{Name: "fleet", UID: "0b5a5a2e-hub", SchemaBase: "http://capstan:8091/schemas/"}
	start = time.Date(2026, 5, 6, 8, 35, 11, 0, time.UTC)
)

func at(seconds int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))
}

// promotion that is manual, approved and finished.
func promotion(phase capstanv1.PromotionPhase) *capstanv1.Promotion {
	finished := at(90)
	started := at(1)
	return &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-prod-1", UID: "uid-of-promotion", CreationTimestamp: at(0)},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: "web", UID: "uid-of-pipeline"}, Environment: "prod", Number: 1, Revision: "1.2.0",
			App:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Source: capstanv1.PromotionSource{Environment: "dev", Sequence: 3}, Manual: true,
			From:     &capstanv1.PromotionBase{Revisions: []string{"1.1.0"}, Targets: []string{"web in namespace shop of Cluster fleet/prod"}},
			Strategy: pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{}},
		},
		Status: capstanv1.PromotionStatus{
			Phase: phase, Reason: "TargetsReady", Message: "every target runs 1.2.0", StartTime: &started, FinishTime: &finished,
			Approval: &capstanv1.ApprovalRecord{By: "ann", ApprovalTime: at(30), Method: capstanv1.ApprovalByHTTP},
			Attempt:  &capstanv1.Attempt{Number: 2}, URL: "https://git.example/pulls/7",
		},
	}
}

// rollback of the promotion web-prod-1, by request.
func rollback() *capstanv1.Promotion {
	p := promotion("")
	p.Name, p.UID, p.Spec.Number, p.Spec.Revision, p.Spec.Source.Sequence = "web-prod-2", "uid-of-rollback", 2, "1.1.0", 0
	p.Spec.From.Revisions = []string{"1.2.0"}
	p.Spec.RollbackOf = &capstanv1.RollbackReference{Name: "web-prod-1", Number: 1}
	p.Spec.Request = &capstanv1.RequestReference{Name: "back", UID: "uid-of-request", By: "olga", Reason: "incident 4711"}
	p.Status = capstanv1.PromotionStatus{}
	return p
}

func connection(state capstanv1.ConnectionState) *capstanv1.ClusterConnection {
	since, expiry := at(5), at(3600)
	return &capstanv1.ClusterConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "cluster-prod", UID: "uid-of-connection", CreationTimestamp: at(0)},
		Spec: capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{
			APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Namespace: "fleet", Name: "prod"}},
		Status: capstanv1.ClusterConnectionStatus{
			State: state, Reason: "ProbeFailed", Message: "no answer", LastTransitionTime: &since, KubernetesVersion: "v1.36.3", CredentialExpiryTime: &expiry,
		},
	}
}

// stalled is a promotion that waits too long for its rollout.
func stalled() *capstanv1.Promotion {
	p := promotion(capstanv1.PhaseAwaitingRollout)
	p.Status.FinishTime = nil
	p.Status.Conditions = []metav1.Condition{{
		Type: capstanv1.StalledCondition, Status: metav1.ConditionTrue, Reason: "TooOld", Message: "in AwaitingRollout since 08:35, which is longer than --stall-after 30m", LastTransitionTime: at(80),
	}}
	return p
}

// ofStalled returns the last event of a stalled promotion.
func ofStalled(t *testing.T) ce.Event {
	t.Helper()
	all := hub.Promotions(stalled())
	return all[len(all)-1]
}

// TestStalled: a promotion that becomes stalled has an event, once for each time; one that failed,
// or advances again, has none.
func TestStalled(t *testing.T) {
	g := NewWithT(t)
	first := ofStalled(t)
	g.Expect(KindOf(first)).To(Equal(PromotionStalled))
	g.Expect(first.Time()).To(Equal(at(80).Time))
	p := stalled()
	p.Status.Conditions[0].Message = "still"
	same := hub.Promotions(p)
	g.Expect(same[len(same)-1].ID()).To(Equal(first.ID()), "another message is not another event")
	p.Status.Conditions[0].LastTransitionTime = at(85)
	again := hub.Promotions(p)
	g.Expect(again[len(again)-1].ID()).NotTo(Equal(first.ID()))
	p.Status.Conditions = nil
	over := hub.Promotions(p)
	g.Expect(KindOf(over[len(over)-1])).NotTo(Equal(PromotionStalled))
	failed := stalled()
	failed.Status.Phase, failed.Status.FinishTime = capstanv1.PhaseFailed, ptr.To(at(90))
	for _, e := range hub.Promotions(failed) {
		g.Expect(KindOf(e)).NotTo(Equal(PromotionStalled))
	}
}

// samples are all kinds of events.
func samples(t *testing.T) []ce.Event {
	t.Helper()
	var all []ce.Event
	keep := func(e ce.Event, published bool) {
		if !published {
			t.Fatal("the state has no event")
		}
		all = append(all, e)
	}
	all = append(all, hub.Promotions(promotion(capstanv1.PhaseSucceeded))...)
	for _, phase := range []capstanv1.PromotionPhase{capstanv1.PhaseFailed, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded} {
		ends := hub.Promotions(promotion(phase))
		all = append(all, ends[len(ends)-1])
	}
	gated := promotion(capstanv1.PhaseAwaitingGates)
	gated.Status.GatesOpenTime, gated.Status.GatesCloseTime, gated.Status.FinishTime = ptr.To(at(20)), ptr.To(at(35)), nil
	gated.Spec.Overrides = []capstanv1.Override{{Gate: capstanv1.GateSoak, By: "olga", Reason: "hotfix"}}
	gated.Status.Gates = []capstanv1.GateStatus{
		{Name: capstanv1.GateSoak, Type: capstanv1.SoakGate, State: capstanv1.GateOpen, Reason: capstanv1.GateOverridden, Message: "olga overrides it (hotfix): soaked 5m of 2h", LastTransitionTime: ptr.To(at(25))},
		{Name: capstanv1.GateWindows, Type: capstanv1.WindowGate, State: capstanv1.GateClosed, Reason: "Frozen", Message: `window "freeze" denies promotions`, LastTransitionTime: ptr.To(at(40))},
		{Name: capstanv1.GatePromotionWindows, Type: capstanv1.PromotionWindowGate, State: capstanv1.GateClosed, Reason: "Frozen", Message: `PromotionWindow "stop" denies promotions`, LastTransitionTime: ptr.To(at(35))},
	}
	all = append(all, hub.Promotions(gated)[2:5]...)
	all = append(all, hub.Promotions(rollback())[1])
	verified := promotion(capstanv1.PhaseVerifying)
	verified.Status.VerifyTime, verified.Status.FinishTime = ptr.To(at(45)), nil
	ends := hub.Promotions(verified)
	all = append(all, ends[len(ends)-1])
	all = append(all, ofStalled(t))
	all = append(all, hub.ClusterRegistered(connection("")))
	for _, state := range []capstanv1.ConnectionState{
		capstanv1.ConnectionReady, capstanv1.ConnectionDegraded, capstanv1.ConnectionUnreachable, capstanv1.ConnectionAuthFailed, capstanv1.ConnectionRemoved,
	} {
		keep(hub.ClusterState(connection(state), ""))
	}
	keep(hub.ClusterState(connection(capstanv1.ConnectionReady), capstanv1.ConnectionUnreachable))
	keep(hub.ClusterCredentialsRotated(connection(capstanv1.ConnectionReady), start))
	keep(hub.ClusterCredentialsExpiring(connection(capstanv1.ConnectionReady), time.Hour, start.Add(time.Minute)))
	instance := Instance{
		InstanceID: "i-0abc", AutoScalingGroup: "workers", State: "running", EventID: "aws-event-1", Region: "eu-west-1", Account: "123456789012",
		Object: &Object{Cluster: "Cluster/fleet/prod", Kind: "AWSMachine", Namespace: "fleet", Name: "prod-1"}, LabelKey: "ec2-instance-state",
	}
	for _, k := range []Kind{InstanceStateChanged, InstanceSpotInterruption, InstanceLifecycleHook, InstanceScheduledChange} {
		all = append(all, hub.Instances(k, instance, start))
	}
	machines := MachineDeployment{Kind: "MachineDeployment", Namespace: "fleet", Name: "workers", InstanceType: "m6g.large", CPU: 2, MemoryMiB: 8192, Architecture: "arm64"}
	all = append(all, hub.MachineDeployments("uid-of-machines", "1", machines, start))
	machines.Reason, machines.Message = "UnknownInstanceType", "there is no type m6g.lrge in eu-west-1"
	all = append(all, hub.MachineDeployments("uid-of-machines", "1", machines, start))
	backend := Backend{Namespace: "hub", Name: "bus", BackendType: "nats"}
	return append(all, hub.Backends("uid-of-backend", true, backend, start), hub.Backends("uid-of-backend", false, backend, start))
}

// TestGolden: every kind has its JSON form of testdata, is a valid CloudEvent, and its data
// matches the schema.
func TestGolden(t *testing.T) {
	g := NewWithT(t)
	seen := map[Kind]bool{}
	for _, e := range samples(t) {
		k := KindOf(e)
		g.Expect(e.Validate()).To(Succeed())
		seen[k] = true
		wire, err := json.Marshal(e)
		g.Expect(err).NotTo(HaveOccurred())
		var indented map[string]any
		g.Expect(json.Unmarshal(wire, &indented)).To(Succeed())
		wire, err = json.MarshalIndent(indented, "", "  ")
		g.Expect(err).NotTo(HaveOccurred())
		golden := filepath.Join("testdata", string(k)+".json")
		if *update {
			g.Expect(os.MkdirAll("testdata", 0o755)).To(Succeed())
			g.Expect(os.WriteFile(golden, append(wire, '\n'), 0o644)).To(Succeed())
		}
		want, err := os.ReadFile(golden)
		g.Expect(err).NotTo(HaveOccurred(), "run go test ./hub/eventing/event -update")
		g.Expect(string(wire)+"\n").To(Equal(string(want)), golden)

		strict, err := schemas[k.Object()].Resolve(nil)
		g.Expect(err).NotTo(HaveOccurred())
		var data any
		g.Expect(json.Unmarshal(e.Data(), &data)).To(Succeed())
		g.Expect(strict.Validate(data)).To(Succeed(), string(k))
	}
	for _, entry := range Catalogue() {
		g.Expect(seen).To(HaveKey(entry.Kind))
	}
}

// TestSchemas: each kind has a schema, which allows fields of a later release.
func TestSchemas(t *testing.T) {
	g := NewWithT(t)
	for _, entry := range Catalogue() {
		text, known := Schema(entry.Kind)
		g.Expect(known).To(BeTrue())
		g.Expect(string(text)).To(And(ContainSubstring(draft), Not(ContainSubstring("additionalProperties"))))
	}
	_, known := Schema("promotion.unknown.v1")
	g.Expect(known).To(BeFalse())
}

func TestDocumentIsCurrent(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join("..", "..", "..", "docs", "events.md")
	if *update {
		g.Expect(os.WriteFile(path, []byte(Document()), 0o644)).To(Succeed())
	}
	written, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(written)).To(Equal(Document()), "run `make generate`")
}

func ids(events []ce.Event) []string {
	var all []string
	for _, e := range events {
		all = append(all, e.ID())
	}
	return all
}

// TestSameTransitionSameEvent: the event of an object in memory, with fractions of a
// second, equals that of the object read back after later changes.
func TestSameTransitionSameEvent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		p := promotion(rapid.SampledFrom([]capstanv1.PromotionPhase{
			capstanv1.PhaseSucceeded, capstanv1.PhaseFailed, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded}).Draw(t, "phase"))
		p.UID = types.UID(rapid.String().Draw(t, "uid"))
		p.Spec.Manual = rapid.Bool().Draw(t, "manual")
		p.Status.Message = rapid.String().Draw(t, "message")
		fraction := time.Duration(rapid.Int64Range(0, int64(time.Second)-1).Draw(t, "fraction"))
		later := promotion(p.Status.Phase)
		later.UID, later.Spec, later.Status.Message = p.UID, p.Spec, p.Status.Message
		for _, one := range []*metav1.Time{p.Status.StartTime, p.Status.FinishTime, &p.Status.Approval.ApprovalTime} {
			one.Time = one.Add(fraction).In(time.FixedZone("there", 3600))
		}
		later.ResourceVersion, later.Status.Attempt.Number, later.Status.Withdrawn = "77", 9, true
		first, again := hub.Promotions(p), hub.Promotions(later)
		g.Expect(again).To(Equal(first))

		// Earlier states have the first of the final events.
		early := p.DeepCopy()
		early.Status.Phase, early.Status.FinishTime = capstanv1.PhaseAwaitingRollout, nil
		g.Expect(hub.Promotions(early)).To(Equal(first[:len(first)-1]))

		// Another hub, object or retry is another event.
		other := Hub{Name: hub.Name, UID: "another", SchemaBase: hub.SchemaBase}
		g.Expect(ids(other.Promotions(p))).NotTo(ContainElements(ids(first)))
		again2 := p.DeepCopy()
		again2.Status.Retry++
		g.Expect(ids(hub.Promotions(again2))).NotTo(ContainElement(first[len(first)-1].ID()))
		restarted := p.DeepCopy() // A Secret changed: the promotion starts again in the same retry.
		restarted.Status.StartTime = &metav1.Time{Time: p.Status.StartTime.Add(10 * time.Second)}
		g.Expect(ids(hub.Promotions(restarted))).NotTo(ContainElement(first[len(first)-1].ID()))
	})
}

// TestRollback: a rollback is published once, when it is created, with what caused it. All events of the
// promotion name the rolled-back one and the request.
func TestRollback(t *testing.T) {
	g := NewWithT(t)
	dataOf := func(e ce.Event) (data Promotion) {
		g.Expect(json.Unmarshal(e.Data(), &data)).To(Succeed())
		return data
	}
	created := rollback()
	first := hub.Promotions(created)
	g.Expect(first).To(HaveLen(2))
	g.Expect(KindOf(first[1])).To(Equal(PromotionRolledBack))
	g.Expect(first[1].Time()).To(Equal(created.CreationTimestamp.Time))
	g.Expect(dataOf(first[1])).To(And(HaveField("Reason", "request"),
		HaveField("Message", `olga requested to roll back Promotion web-prod-1 of environment "prod" to 1.1.0: incident 4711`)))

	ended := rollback()
	ended.Status, ended.Status.Retry = promotion(capstanv1.PhaseSucceeded).Status, 1
	all := hub.Promotions(ended)
	g.Expect(all[:2]).To(Equal(first), "a retry is no other rollback")
	for _, e := range all {
		g.Expect(dataOf(e)).To(And(HaveField("RollbackOf", "web-prod-1"), HaveField("Request", "back"), HaveField("RequestedBy", "olga")))
	}

	automatic := rollback()
	automatic.Spec.Request = nil
	g.Expect(dataOf(hub.Promotions(automatic)[1])).To(And(HaveField("Reason", "failure"), HaveField("RequestedBy", ""),
		HaveField("Message", `Promotion web-prod-1 failed; environment "prod" is rolled back to 1.1.0`)))

	requested := rollback()
	requested.Spec.RollbackOf = nil
	g.Expect(hub.Promotions(requested)).To(HaveLen(1))
	g.Expect(dataOf(hub.Promotions(requested)[0])).To(And(HaveField("RollbackOf", ""), HaveField("Request", "back")))

	long := rollback()
	long.Spec.Request.By, long.Spec.Request.Reason = strings.Repeat("ä", 512), strings.Repeat("ß", 256)
	g.Expect(len(dataOf(hub.Promotions(long)[1]).Message)).To(BeNumerically("<=", maxMessage))
}

// TestDigest: different lists of parts have different digests.
func TestDigest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.String(), 1, 5)
		a, b := parts.Draw(t, "a"), parts.Draw(t, "b")
		if same := fmt.Sprintf("%q", a) == fmt.Sprintf("%q", b); same != (digest(a...) == digest(b...)) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

// TestEverySampleHasItsOwnID, except Ready and recovered, which are one transition.
func TestEverySampleHasItsOwnID(t *testing.T) {
	g := NewWithT(t)
	seen := map[string]Kind{}
	for _, e := range samples(t) {
		k := KindOf(e)
		if before, twice := seen[e.ID()]; twice {
			g.Expect([]Kind{before, k}).To(ConsistOf(ClusterReady, ClusterRecovered))
		}
		seen[e.ID()] = k
	}
}

func TestClusterStates(t *testing.T) {
	g := NewWithT(t)
	for _, quiet := range []capstanv1.ConnectionState{"", capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting} {
		_, published := hub.ClusterState(connection(quiet), "")
		g.Expect(published).To(BeFalse(), string(quiet))
	}
	_, published := hub.ClusterState(connection(capstanv1.ConnectionReady), capstanv1.ConnectionReady)
	g.Expect(published).To(BeFalse(), "the state was already published")
	e, _ := hub.ClusterState(connection(capstanv1.ConnectionReady), capstanv1.ConnectionAuthFailed)
	g.Expect(KindOf(e)).To(Equal(ClusterRecovered))
	_, published = hub.ClusterCredentialsExpiring(connection(capstanv1.ConnectionReady), time.Minute, start)
	g.Expect(published).To(BeFalse(), "the credentials expire in an hour")
}

func TestPrefix(t *testing.T) {
	g := NewWithT(t)
	e := hub.ClusterRegistered(connection(""))
	other := Prefixed(e, "sap.kyma.custom.hub")
	g.Expect(other.Type()).To(Equal("sap.kyma.custom.hub.cluster.registered.v1"))
	g.Expect(e.Type()).To(Equal("dev.capstan.cluster.registered.v1"), "the event itself does not change")
	g.Expect(KindOf(other)).To(Equal(ClusterRegistered))
	g.Expect(other.ID()).To(Equal(e.ID()))
	foreign := ce.New()
	foreign.SetType("com.example.thing")
	g.Expect(KindOf(foreign)).To(BeEmpty())
	g.Expect(PartitionKey(e)).To(Equal("fleet/prod"))
}

func TestMatches(t *testing.T) {
	g := NewWithT(t)
	for pattern, fits := range map[string]bool{
		"*": true, "promotion.*": true, "promotion.failed.v1": true, "*.failed.*": true,
		"cluster.*": false, "promotion": false, "[": false, "": false,
	} {
		g.Expect(PromotionFailed.Matches([]string{pattern})).To(Equal(fits), pattern)
	}
	g.Expect(PromotionFailed.Matches(nil)).To(BeFalse())
}

// TestMessagesAreCut: messages are cut at the end of a character, and are UTF-8.
func TestMessagesAreCut(t *testing.T) {
	g := NewWithT(t)
	p := promotion(capstanv1.PhaseFailed)
	p.Status.Message = strings.Repeat("ä", maxMessage) + "\xff"
	events := hub.Promotions(p)
	var data Promotion
	g.Expect(json.Unmarshal(events[len(events)-1].Data(), &data)).To(Succeed())
	g.Expect(len(data.Message)).To(BeNumerically("<=", maxMessage))
	g.Expect(data.Message).To(HaveSuffix("ä…"))
}
