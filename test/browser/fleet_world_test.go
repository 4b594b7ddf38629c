package browser

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/ports"
)

// Size of the fleet.
const (
	fleetClusters, fleetPipelines, fleetEnvironments = 1000, 300, 20
	fleetPromotions, fleetBackends                   = 600, 50
	fleetNodeGroups, fleetMachines                   = 200, 200
	// fleetWriters create objects at the same time.
	fleetWriters = 16
)

// fleet is a hub on a control plane of its own, which has the objects of a large fleet as a leader would have
// written them. The hub is a standby: it shows them, and changes none.
type fleet struct {
	admin client.Client
	url   string
	// tokens of users who may see everything and approve.
	tokens []string
	// Names of objects with the longest names: a cluster, a Pipeline and a Promotion that waits for approval.
	cluster   pipelinesv1.CrossNamespaceClusterReference
	pipeline  client.ObjectKey
	promotion client.ObjectKey
	now       metav1.Time
	// viewers who signed in so far.
	viewers byte
}

// hostileTexts are messages and revisions of other programs.
var hostileTexts = []string{
	"<script>document.body.innerHTML = 'owned'</script><img src=x onerror=alert(1)>", strings.Repeat("no-space", 100), "\u202eright to left\u202c مرحبا بالعالم שלום",
	strings.Repeat("字", 300), `"quoted" & 'quoted' </td></tr></table>`, "1.0.0", strings.Repeat("several words ", 50), "\x7f\t\r\n",
}

func hostileText(i int) string { return hostileTexts[i%len(hostileTexts)] }

// teams are the namespaces; the first has the longest name that is permitted.
func teamOf(i int) string {
	const teams, longest = 10, 63
	if i%teams == 0 {
		return "n" + strings.Repeat("a", longest-1)
	}
	return fmt.Sprintf("team-%d", i%teams)
}

// longName is a name of a length, with a number at its end.
func longName(length, i int) string {
	number := fmt.Sprint(i)
	return strings.Repeat("x", length-len(number)) + number
}

// nameOf the i-th object of a kind: some have the longest name that is permitted.
func nameOf(kind string, longest, i int) string {
	const often = 50
	if i%often == 0 {
		return longName(longest, i)
	}
	return fmt.Sprintf("%s-%04d", kind, i)
}

const (
	// longest is the longest name of an object. The hub's name for a ClusterConnection begins with "cluster.".
	longest        = 253
	longestCluster = longest - len("cluster.")
)

func clusterRef(i int) pipelinesv1.CrossNamespaceClusterReference {
	return pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: teamOf(i), Name: nameOf("cluster", longestCluster, i)}
}

func environmentName(e int) string {
	if e == fleetEnvironments-1 {
		return longName(200, e)
	}
	return fmt.Sprintf("environment-%02d", e)
}

// startFleet creates the objects, then starts the hub.
func startFleet(t *testing.T) *fleet {
	t.Helper()
	g := NewWithT(t)
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan", "cluster-api", "cluster-api-provider-aws", "helm-controller", "kustomize-controller")})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(plane.Stop()).To(Succeed()) })
	config := plane.Config()
	config.QPS, config.Burst = 2000, 2000
	f := &fleet{now: metav1.NewTime(time.Now().Truncate(time.Second)), cluster: clusterRef(0), pipeline: client.ObjectKey{Namespace: teamOf(0), Name: nameOf("pipeline", longest, 0)}}
	f.admin, err = client.New(config, client.Options{Scheme: world.admin.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	began := time.Now()
	g.Expect(f.declare(t.Context())).To(Succeed())
	t.Logf("the objects of the fleet were created in %s", time.Since(began).Round(time.Second))

	address, err := ports.Free()
	g.Expect(err).NotTo(HaveOccurred())
	f.url = "http://" + address
	// Another replica has the lease for longer than the test takes.
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: hub.LeaseName}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
	}}
	g.Expect(f.admin.Create(t.Context(), lease)).To(Succeed())
	// The hub stops before the test ends. Its errors are why a page is not shown.
	errorsOf := funcr.New(func(_, args string) {
		if strings.Contains(args, `"error"=`) {
			t.Log(args[:min(len(args), 1000)])
		}
	}, funcr.Options{})
	stop, err := launch(hub.Options{
		Config: plane.Config(), LeaderElect: true, LeaderElectionNamespace: hubNamespace, Logger: errorsOf,
		Dashboard: hub.Dashboard{BindAddress: address, Auth: dashboard.AuthToken, Version: "v0.1.0"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(stop()).To(Succeed()) })
	return f
}

const hubNamespace = "hub"

func (f *fleet) declare(ctx context.Context) error {
	for _, name := range []string{hubNamespace, teamOf(0), teamOf(1), teamOf(2), teamOf(3), teamOf(4), teamOf(5), teamOf(6), teamOf(7), teamOf(8), teamOf(9)} {
		if err := f.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	if err := f.users(ctx); err != nil {
		return err
	}
	for _, kind := range []struct {
		n      int
		create func(context.Context, int) error
	}{
		{fleetClusters, f.connection}, {fleetPipelines, f.pipelineOf}, {fleetPromotions, f.promotionOf}, {fleetBackends, f.backend}, {fleetNodeGroups, f.nodeGroup}, {fleetMachines, f.machine},
	} {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(fleetWriters)
		for i := range kind.n {
			group.Go(func() error { return kind.create(ctx, i) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// users creates two users with the same rights.
func (f *fleet) users(ctx context.Context) error {
	all := []string{"*"}
	objects := []client.Object{&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sees"}, Rules: []rbacv1.PolicyRule{{APIGroups: all, Resources: all, Verbs: all}}}}
	for _, name := range []string{"ann", "bob"} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: name}}
		objects = append(objects, account, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: hubNamespace, Name: name}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sees"},
		})
	}
	for _, o := range objects {
		if err := f.admin.Create(ctx, o); err != nil {
			return err
		}
		account, ok := o.(*corev1.ServiceAccount)
		if !ok {
			continue
		}
		request := &authenticationv1.TokenRequest{}
		if err := f.admin.SubResource("token").Create(ctx, account, request); err != nil {
			return err
		}
		f.tokens = append(f.tokens, request.Status.Token)
	}
	return nil
}

func (f *fleet) ago(d time.Duration) *metav1.Time { return &metav1.Time{Time: f.now.Add(-d)} }

func (f *fleet) connection(ctx context.Context, i int) error {
	ref := clusterRef(i)
	c := &capstanv1.ClusterConnection{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: "cluster." + ref.Name}, Spec: capstanv1.ClusterConnectionSpec{ClusterRef: ref}}
	if err := f.admin.Create(ctx, c); err != nil {
		return err
	}
	c.Status = capstanv1.ClusterConnectionStatus{
		State: capstanv1.ConnectionReady, Reason: "Connected", KubernetesVersion: "v1.36.3", Apps: 12, LastTransitionTime: f.ago(time.Duration(i) * time.Minute),
		CredentialExpiryTime: f.ago(-time.Duration(i) * time.Hour), Server: "https://" + longName(200, i) + ".example.com",
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Connected", LastTransitionTime: f.now}},
	}
	const often = 12
	broken := []capstanv1.ConnectionState{capstanv1.ConnectionAuthFailed, capstanv1.ConnectionUnreachable, capstanv1.ConnectionDegraded, capstanv1.ConnectionConnecting}
	if i%often < len(broken) {
		c.Status.State, c.Status.Reason, c.Status.Message = broken[i%often], fmt.Sprintf("Reason%d", i%3), hostileText(i)
	}
	return f.admin.Status().Update(ctx, c)
}

func (f *fleet) pipelineOf(ctx context.Context, i int) error {
	by := pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: teamOf(i), Name: nameOf("pipeline", longest, i)},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: nameOf("app", longest, i)},
			Promotion: &pipelinesv1.Promotion{Strategy: by, Manual: true},
		},
	}
	targets := func(e int) []int {
		return []int{(i*fleetEnvironments + e) % fleetClusters, (i*7 + e*13 + 1) % fleetClusters}
	}
	for e := range fleetEnvironments {
		env := pipelinesv1.Environment{Name: environmentName(e)}
		for _, c := range targets(e) {
			env.Targets = append(env.Targets, pipelinesv1.Target{Namespace: "apps", ClusterRef: ptr.To(clusterRef(c))})
		}
		p.Spec.Environments = append(p.Spec.Environments, env)
	}
	if err := f.admin.Create(ctx, p); err != nil {
		return err
	}
	p.Status = pipelinesv1.PipelineStatus{
		Schema: pipelinesv1.StatusSchema, SchemaFleets: pipelinesv1.StatusSchemaFleets, ObservedGeneration: p.Generation, Environments: map[string]*pipelinesv1.EnvironmentStatus{},
	}
	for e := range fleetEnvironments {
		status := &pipelinesv1.EnvironmentStatus{}
		for _, c := range targets(e) {
			at := i*fleetEnvironments + e + c
			target := pipelinesv1.TargetStatus{
				ClusterAppRef: pipelinesv1.ClusterAppReference{LocalAppReference: p.Spec.AppRef, ClusterRef: ptr.To(clusterRef(c))},
				Ready:         at%5 != 0, Revision: "1.0.0", Stale: c%12 == 1, ObservedTime: f.ago(time.Minute),
			}
			if !target.Ready {
				target.Revision, target.Reason, target.Message = strings.TrimSpace(hostileText(at)), "InstallFailed", hostileText(at+1)
			}
			status.Targets = append(status.Targets, target)
		}
		p.Status.Environments[environmentName(e)] = status
	}
	for k := i; k < fleetPromotions; k += fleetPipelines {
		s := f.promotionStatus(k)
		p.Status.Environments[environmentName(promotedInto(k))].Promotion = &pipelinesv1.PromotionSummary{
			Name: promotionName(k), Revision: promotedRevision(k), Phase: string(s.Phase), Reason: s.Reason, Message: s.Message,
		}
	}
	return f.admin.Status().Update(ctx, p)
}

func promotionName(k int) string { return nameOf("promotion", longest, k) }

// promotedInto is the environment of the k-th promotion, which is never the first.
func promotedInto(k int) int { return 1 + k%(fleetEnvironments-1) }

func promotedRevision(k int) string {
	if text := strings.TrimSpace(hostileText(k)); k%4 == 0 && text != "" {
		return text
	}
	return fmt.Sprintf("1.%d.0", k)
}

var fleetPhases = []capstanv1.PromotionPhase{
	capstanv1.PhaseAwaitingApproval, capstanv1.PhaseFailed, capstanv1.PhaseAwaitingGates, capstanv1.PhaseSucceeded, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseRejected,
	capstanv1.PhaseVerifying, capstanv1.PhaseSuperseded, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge,
}

func (f *fleet) promotionStatus(k int) capstanv1.PromotionStatus {
	s := capstanv1.PromotionStatus{Phase: fleetPhases[k%len(fleetPhases)], StartTime: f.ago(time.Duration(k+10) * time.Minute), Message: hostileText(k)}
	if s.Phase.Finished() {
		s.Reason, s.FinishTime = fmt.Sprintf("Reason%d", k%5), f.ago(time.Duration(k)*time.Minute)
	}
	if s.Phase == capstanv1.PhaseAwaitingMerge {
		s.URL = "https://git.example.com/" + longName(200, k) + "/pulls/1"
	}
	if s.Phase == capstanv1.PhaseAwaitingGates {
		s.Gates = []capstanv1.GateStatus{{Name: capstanv1.GateSoak, Type: capstanv1.SoakGate, State: capstanv1.GateClosed, Reason: "Soaking", Message: hostileText(k), LastTransitionTime: f.ago(time.Hour)}}
	}
	return s
}

func (f *fleet) promotionOf(ctx context.Context, k int) error {
	i := k % fleetPipelines
	p := &pipelinesv1.Pipeline{}
	key := client.ObjectKey{Namespace: teamOf(i), Name: nameOf("pipeline", longest, i)}
	if err := f.admin.Get(ctx, key, p); err != nil {
		return err
	}
	promotion := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: promotionName(k), Labels: map[string]string{capstanv1.PipelineUIDLabel: string(p.UID)}},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: p.Name, UID: p.UID}, App: p.Spec.AppRef, Environment: environmentName(promotedInto(k)), Number: 1, Revision: promotedRevision(k),
			Source: capstanv1.PromotionSource{Environment: environmentName(promotedInto(k) - 1), Sequence: 1}, Strategy: p.Spec.Promotion.Strategy, Manual: true,
		},
	}
	if err := f.admin.Create(ctx, promotion); err != nil {
		return err
	}
	promotion.Status = f.promotionStatus(k)
	if k == 0 {
		f.promotion = client.ObjectKeyFromObject(promotion)
	}
	return f.admin.Status().Update(ctx, promotion)
}

func (f *fleet) backend(ctx context.Context, i int) error {
	const often = 10
	o := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: teamOf(i), Name: nameOf("backend", longest, i)}, Spec: eventingv1.EventingBackendSpec{Type: "nats"}}
	if i%often == 0 {
		o.Name = longName(longest, i)
	}
	if err := f.admin.Create(ctx, o); err != nil {
		return err
	}
	ready := eventingv1.Condition{Type: string(eventingv1.ReadyCondition), Status: metav1.ConditionTrue, Reason: "Connected", Message: "connected", LastTransitionTime: f.now}
	if i%3 == 0 {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Unreachable", hostileText(i)
	}
	o.Status = eventingv1.EventingBackendStatus{BackendType: "nats", ObservedGeneration: o.Generation, Conditions: []eventingv1.Condition{ready}}
	return f.admin.Status().Update(ctx, o)
}

func (f *fleet) nodeGroup(ctx context.Context, i int) error {
	ref := clusterRef(i)
	return f.admin.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": map[string]any{"namespace": ref.Namespace, "name": nameOf("group", longest, i)},
		"spec": map[string]any{
			"clusterName": clusterName(ref), "replicas": int64(3), "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{
				"clusterName": clusterName(ref), "bootstrap": map[string]any{"dataSecretName": "x"},
				"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachineTemplate", "name": "web"},
			}},
		},
	}})
}

// clusterName is the name of a cluster as Cluster API permits it: 63 characters.
func clusterName(ref pipelinesv1.CrossNamespaceClusterReference) string {
	return ref.Name[max(0, len(ref.Name)-63):]
}

func (f *fleet) machine(ctx context.Context, i int) error {
	ref := clusterRef(i)
	return f.admin.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "AWSMachine",
		"metadata": map[string]any{"namespace": ref.Namespace, "name": nameOf("machine", longest, i), "labels": map[string]any{
			"cluster.x-k8s.io/cluster-name": clusterName(ref), "ec2-instance-state": []string{"running", "spot-interruption", "terminated", "stopping"}[i%4],
		}},
		"spec": map[string]any{"instanceType": "m5.large", "instanceID": fmt.Sprintf("i-%017d", i)},
	}})
}

// addresses are the pages of the dashboard, by name. A new page needs a line here.
func (f *fleet) addresses() map[string]string {
	escape := func(parts ...string) string {
		for i := range parts {
			parts[i] = url.PathEscape(parts[i])
		}
		return "/" + strings.Join(parts, "/")
	}
	return map[string]string{
		"overview": "/", "clusters": "/clusters", "cluster": escape("clusters", f.cluster.Kind, f.cluster.Namespace, f.cluster.Name), "management": "/management",
		"pipelines": "/pipelines", "pipeline": escape("pipelines", f.pipeline.Namespace, f.pipeline.Name), "promotions": "/promotions", "instances": "/instances",
		"backends": "/backends", "delivery": "/delivery", "about": "/about", "search": "/search?q=x", "approve": escape("promotions", f.promotion.Namespace, f.promotion.Name, "approve"),
		"pipelines-last-page": "/pipelines?page=3", "clusters-filtered": "/clusters?q=" + url.QueryEscape(strings.Repeat("x", 100)), "missing": "/nowhere",
	}
}
