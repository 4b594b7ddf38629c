package dashboard

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// tenant has objects of every kind in a namespace. All of their names and texts begin with its mark.
type tenant struct {
	*world
	namespace, mark string
	connection      *capstanv1.ClusterConnection
	pipeline        *pipelinesv1.Pipeline
	waiting         *capstanv1.Promotion
	backend         *eventingv1.EventingBackend
}

func (n *tenant) name(of string) string { return n.mark + "-" + of }

func (n *tenant) meta(of string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: n.namespace, Name: n.name(of)}
}

// create creates an object, and its status if the object has one.
func (n *tenant) create(o client.Object, status ...func()) {
	n.t.Helper()
	n.Expect(n.c.Create(n.t.Context(), o)).To(Succeed())
	for _, set := range status {
		set()
		n.Expect(n.c.Status().Update(n.t.Context(), o)).To(Succeed())
	}
	if _, machine := o.(*unstructured.Unstructured); !machine {
		n.seen(o)
	}
}

// raw creates an object of a kind without Go type.
func (n *tenant) raw(apiVersion, kind, name string, labels map[string]any, content map[string]any) *unstructured.Unstructured {
	n.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"namespace": n.namespace, "name": name, "labels": labels},
	}}
	for key, value := range content {
		o.Object[key] = value
	}
	n.create(o)
	return o
}

// connect creates the connection of a cluster in a state.
func (n *tenant) connect(kind, of string, state capstanv1.ConnectionState, reason string) *capstanv1.ClusterConnection {
	n.t.Helper()
	c := &capstanv1.ClusterConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: strings.ToLower(kind) + "." + n.name(of)},
		Spec:       capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{Kind: kind, Namespace: n.namespace, Name: n.name(of)}},
	}
	n.create(c, func() {
		since := metav1.NewTime(n.clock.Now().Add(-time.Hour).Truncate(time.Second))
		c.Status = capstanv1.ClusterConnectionStatus{State: state, Reason: reason, KubernetesVersion: "v1.36.3", Server: "https://" + n.name("only-connections") + ":6443", LastTransitionTime: &since}
	})
	n.report(kind, of, state, reason)
	return c
}

// report sets what the leader observes of a connection. Its last contact is never outdated.
func (n *tenant) report(kind, of string, state capstanv1.ConnectionState, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard[view.Cluster{Kind: kind, Namespace: n.namespace, Name: n.name(of)}] = view.Observed{State: state, Reason: reason, Since: n.clock.Now().Add(-time.Hour).Truncate(time.Second), LastContact: n.clock.Now().Add(day)}
	n.clock.step(factsFor)
}

const day = 24 * time.Hour

// rail creates a Pipeline over targets in clusters, which all run 1.0.0.
func (n *tenant) rail(of string, in ...pipelinesv1.CrossNamespaceClusterReference) *pipelinesv1.Pipeline {
	n.t.Helper()
	p := &pipelinesv1.Pipeline{ObjectMeta: n.meta(of), Spec: pipelinesv1.PipelineSpec{
		AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: n.name(of)},
		Promotion: &pipelinesv1.Promotion{Manual: true, Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
	}}
	for i := range in {
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: n.name(fmt.Sprintf("env-%d", i)), Targets: []pipelinesv1.Target{{Namespace: n.name("target"), ClusterRef: &in[i]}}})
	}
	n.create(p)
	for i := range in {
		n.runs(p, p.Spec.Environments[i].Name, "1.0.0")
	}
	return p
}

func (n *tenant) ref(kind, of string) pipelinesv1.CrossNamespaceClusterReference {
	return pipelinesv1.CrossNamespaceClusterReference{Kind: kind, Namespace: n.namespace, Name: n.name(of)}
}

// moved creates the promotion no. i of a Pipeline into its second environment.
func (n *tenant) moved(p *pipelinesv1.Pipeline, i int64, revision string, status capstanv1.PromotionStatus) *capstanv1.Promotion {
	n.t.Helper()
	into := p.Spec.Environments[1].Name
	o := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: fmt.Sprintf("%s-%d", p.Name, i), Labels: map[string]string{capstanv1.PipelineUIDLabel: string(p.UID)}},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: p.Name, UID: p.UID}, App: p.Spec.AppRef, Environment: into, Number: i, Revision: revision,
			Source: capstanv1.PromotionSource{Environment: p.Spec.Environments[0].Name, Sequence: i}, Strategy: p.Spec.Promotion.Strategy, Manual: true,
		},
	}
	n.create(o, func() { o.Status = status })
	n.status(p, into, func(e *pipelinesv1.EnvironmentStatus) {
		e.Promotion = &pipelinesv1.PromotionSummary{Name: o.Name, Revision: o.Spec.Revision, Phase: string(status.Phase), Reason: status.Reason}
		e.WaitingApproval.Revision = ""
		if status.Phase == capstanv1.PhaseAwaitingApproval {
			e.WaitingApproval.Revision = o.Spec.Revision
		}
	})
	return o
}

// event creates an Event of the hub about an object of the tenant.
func (n *tenant) event(of, action, reason, note, kind, regarding string) {
	n.t.Helper()
	n.create(&eventsv1.Event{
		ObjectMeta: n.meta(of), EventTime: metav1.NewMicroTime(n.clock.Now().Truncate(time.Second)), ReportingController: "capstan", ReportingInstance: "x", Action: action, Reason: reason, Type: "Warning", Note: note,
		Regarding: corev1.ObjectReference{Kind: kind, Namespace: n.namespace, Name: regarding},
	})
}

const (
	capiVersion, gitopsVersion, awsVersion = "cluster.x-k8s.io/v1beta2", "gitops.weave.works/v1alpha1", "infrastructure.cluster.x-k8s.io/v1beta2"
	rightsGate                             = "soak"
)

// settle creates the objects of a tenant: of every kind, well and not well, waiting, failed and done.
func (w *world) settle(namespace, mark string) *tenant {
	w.t.Helper()
	n := &tenant{world: w, namespace: namespace, mark: mark}
	n.clusters()
	n.deliveries()
	n.machines()
	n.event("connected", "Connect", "Unreachable", n.name("says"), "ClusterConnection", n.connection.Name)
	n.event("interrupted", "FollowInstances", "SpotInterruption", n.name("only-events"), "AWSMachine", n.name("spot"))
	n.event("annotated", "TemplateNotFound", "ReconcileError", n.name("says"), "MachineDeployment", n.name("workers"))
	return n
}

func (n *tenant) clusters() {
	n.t.Helper()
	spec := map[string]any{"spec": map[string]any{"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSCluster", "name": "x"}}}
	n.raw(capiVersion, "Cluster", n.name("capi"), map[string]any{"team": n.name("team"), n.name("label"): "x"}, spec)
	n.raw(capiVersion, "Cluster", n.name("only-clusters"), map[string]any{"team": n.name("team")}, spec)
	n.raw(gitopsVersion, "GitopsCluster", n.name("alias"), map[string]any{"team": n.name("team")}, map[string]any{"spec": map[string]any{"capiClusterRef": map[string]any{"name": n.name("capi")}}})
	n.raw(gitopsVersion, "GitopsCluster", n.name("only-gitops"), map[string]any{"team": n.name("team")}, map[string]any{"spec": map[string]any{"secretRef": map[string]any{"name": "x"}}})
	n.connection = n.connect("Cluster", "capi", capstanv1.ConnectionReady, "Connected")
	n.connect("GitopsCluster", "alias", capstanv1.ConnectionReady, "Connected")
	n.connect("Cluster", "only-connections", capstanv1.ConnectionUnreachable, n.name("refused"))
}

func (n *tenant) deliveries() {
	n.t.Helper()
	n.pipeline = n.rail("pipeline", n.ref("Cluster", "capi"), n.ref("GitopsCluster", "alias"))
	begun := metav1.NewTime(n.clock.Now().Add(-time.Minute).Truncate(time.Second))
	ended := metav1.NewTime(begun.Add(time.Minute))
	done := capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, StartTime: &begun, FinishTime: &ended, CarriedOutTime: &ended}
	n.moved(n.pipeline, 1, n.name("only-promotions-1"), done) // A rollback promotes it.
	n.moved(n.pipeline, 2, "1.0.0", done)
	n.waiting = n.moved(n.pipeline, 3, "1.1.0-"+n.mark, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval, Message: n.name("only-promotions")})
	broken := n.rail("broken", n.ref("Cluster", "capi"), n.ref("Cluster", "capi"))
	n.moved(broken, 1, "1.1.0-"+n.mark, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "Impossible", Message: n.name("failure"), StartTime: &begun, FinishTime: &ended})
	gated := n.rail("gated", n.ref("Cluster", "capi"), n.ref("Cluster", "capi"))
	n.moved(gated, 1, "1.1.0-"+n.mark, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, Gates: []capstanv1.GateStatus{
		{Name: rightsGate, Type: capstanv1.SoakGate, State: capstanv1.GateInvalid, Reason: "Soaking", Message: n.name("gate")},
	}})
	stuck := n.rail("only-pipelines", n.ref("Cluster", "capi"), n.ref("Cluster", "capi"))
	stuck.Status.Conditions = []metav1.Condition{{Type: pipelinesv1.StalledCondition, Status: metav1.ConditionTrue, Reason: "InvalidSpec", Message: n.name("stalled"), LastTransitionTime: begun}}
	n.Expect(n.c.Status().Update(n.t.Context(), stuck)).To(Succeed())
	n.seen(stuck)

	n.backend = &eventingv1.EventingBackend{ObjectMeta: n.meta("only-backends"), Spec: eventingv1.EventingBackendSpec{Type: "nats"}}
	queue := &eventingv1.EventingBackend{ObjectMeta: n.meta("only-backends-queue"), Spec: eventingv1.EventingBackendSpec{Type: "sqs"}}
	for b, message := range map[*eventingv1.EventingBackend]string{n.backend: n.name("backend"), queue: eventingv1.SourceOnlyMessage} {
		n.Expect(n.c.Create(n.t.Context(), b)).To(Succeed())
		b.Status = eventingv1.EventingBackendStatus{BackendType: b.Spec.Type, EventingReady: ptr.To(false), ObservedGeneration: b.Generation, Conditions: []eventingv1.Condition{
			{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Unreachable", Message: message, LastTransitionTime: begun},
		}}
		n.Expect(n.c.Status().Update(n.t.Context(), b)).To(Succeed())
	}
}

func (n *tenant) machines() {
	n.t.Helper()
	template := map[string]any{"spec": map[string]any{"clusterName": n.name("capi"), "bootstrap": map[string]any{"dataSecretName": "x"},
		"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachineTemplate", "name": "x"}}}
	selector := map[string]any{"matchLabels": map[string]any{"x": "y"}}
	labelled := map[string]any{"metadata": map[string]any{"labels": map[string]any{"x": "y"}}, "spec": template["spec"]}
	for _, group := range []struct{ kind, name string }{{"MachineDeployment", "workers"}, {"MachineDeployment", "only-groups"}, {"MachineSet", "only-sets"}, {"MachinePool", "only-groups-pool"}} {
		spec := map[string]any{"clusterName": n.name("capi"), "replicas": int64(3), "template": labelled}
		if group.kind != "MachinePool" {
			spec["selector"] = selector
		}
		n.raw(capiVersion, group.kind, n.name(group.name), nil, map[string]any{"spec": spec})
	}
	labels := map[string]any{"cluster.x-k8s.io/cluster-name": n.name("capi"), "ec2-instance-state": "spot-interruption-terminate"}
	for _, name := range []string{"spot", "only-machines"} {
		n.raw(awsVersion, "AWSMachine", n.name(name), labels, map[string]any{"spec": map[string]any{"instanceType": "m5.large", "instanceID": "i-" + n.mark}})
	}
	failed := map[string]any{"cluster.x-k8s.io/cluster-name": n.name("capi"), "asg-instance-state": "launch-failed"}
	n.raw(awsVersion, "AWSManagedMachinePool", n.name("only-managed"), failed, map[string]any{"spec": map[string]any{"eksNodegroupName": "workers-" + n.mark}})
}
