package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// Names of the dry run's queue.
const (
	dryRegion, dryAccount, dryQueue = "eu-west-1", "123456789012", "events"
)

// formerStatus has the fields of the status that pipeline-controller knows. It decodes only these, and writes them by a
// merge patch of what differs, so that it keeps fields that it does not know outside of lists.
type formerStatus struct {
	ObservedGeneration int64                         `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition            `json:"conditions,omitempty"`
	Environments       map[string]*formerEnvironment `json:"environments,omitempty"`
}

type formerEnvironment struct {
	WaitingApproval pipelinesv1.WaitingApproval `json:"waitingApproval,omitempty"`
	Targets         []formerTarget              `json:"targets,omitempty"`
}

type formerTarget struct {
	ClusterAppRef pipelinesv1.ClusterAppReference `json:"clusterAppRef"`
	Ready         bool                            `json:"ready"`
	Revision      string                          `json:"revision,omitempty"`
	Error         string                          `json:"error,omitempty"`
}

// former is a controller as pipeline-controller: it reconciles a Pipeline after every change of it, and writes the whole
// status that it knows.
type former struct {
	c client.WithWatch

	mu     sync.Mutex
	locked struct {
		reconciled map[string]int
	}
}

// counts returns how often a Pipeline was reconciled.
func (f *former) counts(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.locked.reconciled[name]
}

// run reconciles until the context ends.
func (f *former) run(ctx context.Context) error {
	watch, err := f.c.Watch(ctx, &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": pipelinesv1.GroupVersion.String(), "kind": "PipelineList"}})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for e := range watch.ResultChan() {
		u, is := e.Object.(*unstructured.Unstructured)
		switch {
		case ctx.Err() != nil: // The watch ends with an error.
			return nil
		case !is:
			return fmt.Errorf("%s %T", e.Type, e.Object)
		}
		if err := f.reconcile(ctx, u); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (f *former) reconcile(ctx context.Context, u *unstructured.Unstructured) error {
	var p struct {
		Spec   pipelinesv1.PipelineSpec `json:"spec"`
		Status formerStatus             `json:"status"`
	}
	raw, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	status := formerStatus{ObservedGeneration: u.GetGeneration(), Conditions: slices.Clone(p.Status.Conditions), Environments: map[string]*formerEnvironment{}}
	for _, env := range p.Spec.Environments {
		of := &formerEnvironment{}
		for _, target := range env.Targets {
			ref := pipelinesv1.ClusterAppReference{LocalAppReference: p.Spec.AppRef, ClusterRef: target.ClusterRef}
			// It does not know HelmReleases of today.
			of.Targets = append(of.Targets, formerTarget{ClusterAppRef: ref, Error: "unable to find .status.lastAppliedRevision in ready target object"})
		}
		status.Environments[env.Name] = of
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "ReconciliationSucceeded", Message: "All clusters checked"})
	f.mu.Lock()
	f.locked.reconciled[u.GetName()]++
	f.mu.Unlock()
	before, err := json.Marshal(p.Status)
	if err != nil {
		return err
	}
	after, err := json.Marshal(status)
	if err != nil {
		return err
	}
	if string(before) == string(after) {
		return nil
	}
	return client.IgnoreNotFound(f.c.Status().Patch(ctx, u, client.RawPatch("application/merge-patch+json", []byte(`{"status":`+string(after)+`}`))))
}

// A hub in dry run works beside the controller that promotes, with the rights that the chart grants for that: it shows
// what it would promote, and writes nothing else. When it is switched on, it creates exactly what it has announced.
func TestDryRunBesideAnotherController(t *testing.T) {
	g := NewWithT(t)
	auditLog := filepath.Join(t.TempDir(), "audit.log")
	plane, err := controlplane.Start(controlplane.Options{
		CRDs:     controlplane.CRDs("capstan", "cluster-api", "cluster-api-provider-aws", "cluster-controller", "helm-controller"),
		AuditLog: auditLog,
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = plane.Stop() })
	scheme := hub.Scheme()
	g.Expect(helmv2.AddToScheme(scheme)).To(Succeed())
	c, err := client.NewWithWatch(plane.Config(), client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{hubNamespace, appsNamespace, fleetNamespace} {
		g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	rights := func(args ...string) {
		text, err := chart(t, append(args, "--set", "clusterNamespaces={"+fleetNamespace+"}", "--set", "pipelineNamespaces={"+appsNamespace+"}", "--set", "backendNamespaces={"+hubNamespace+"}")...)
		g.Expect(err).NotTo(HaveOccurred())
		for _, o := range objects(t, text) {
			if strings.HasPrefix(o.GetAPIVersion(), "rbac.authorization.k8s.io/") || strings.HasPrefix(o.GetAPIVersion(), "admissionregistration.k8s.io/") && strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") || o.GetKind() == "ServiceAccount" {
				g.Expect(c.Patch(t.Context(), o, client.Apply, client.FieldOwner("helm"), client.ForceOwnership)).To(Succeed(), o.GetName()) //nolint:staticcheck // The objects are unstructured.
			}
		}
	}
	rights("--set", "dryRun=true")

	// What a hub could write to: node groups, machines, a queue with an event, a backend, a request.
	queues, cloud := dryCloud(t)
	create := func(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
		u.SetNamespace(hubNamespace)
		u.SetName(name)
		u.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "c"})
		g.Expect(c.Create(t.Context(), u)).To(Succeed())
		return u
	}
	untouched := []client.Object{
		create("infrastructure.cluster.x-k8s.io/v1beta2", "AWSCluster", "c", map[string]any{"region": dryRegion}),
		create("infrastructure.cluster.x-k8s.io/v1beta2", "AWSMachine", "m", map[string]any{"instanceType": "m5.large", "instanceID": "i-00000000000000001"}),
		create("eventing.kyma-project.io/v1alpha1", "EventingBackend", "events", map[string]any{"type": "sqs", "config": []any{
			map[string]any{"role": "source"}, map[string]any{"queueName": dryQueue}, map[string]any{"region": dryRegion}, map[string]any{"accounts": []any{dryAccount}},
		}}),
	}
	request := &capstanv1.PromotionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: "asked"}, Spec: capstanv1.PromotionRequestSpec{
		Pipeline: "absent", Environment: "prod", Revision: "1.0.0", By: "admin", Reason: "test",
	}}
	if err := c.Create(t.Context(), request); err == nil {
		untouched = append(untouched, request)
	} else {
		g.Expect(err).To(MatchError(ContainSubstring("by")), "the policy wants the user's own name")
	}
	versions := func() map[string]string {
		all := map[string]string{}
		for _, o := range untouched {
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
			all[o.GetName()] = o.GetResourceVersion()
		}
		return all
	}
	before := versions()

	// The Pipelines, and the controller that promotes.
	pipeline := func(name, dev, prod string, edit func(*pipelinesv1.PipelineSpec)) {
		for env, revision := range map[string]string{"dev": dev, "prod": prod} {
			g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + env}})).To(Succeed())
			deploy(g, c, name+"-"+env, revision)
		}
		p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: name}, Spec: pipelinesv1.PipelineSpec{
			AppRef: pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "shop"},
			Environments: []pipelinesv1.Environment{
				{Name: "dev", Targets: []pipelinesv1.Target{{Namespace: name + "-dev"}}}, {Name: "prod", Targets: []pipelinesv1.Target{{Namespace: name + "-prod"}}},
			},
			Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
		}}
		if edit != nil {
			edit(&p.Spec)
		}
		g.Expect(c.Create(t.Context(), p)).To(Succeed())
	}
	pipeline("due", "1.1.0", "1.0.0", nil)
	pipeline("manual", "2.1.0", "2.0.0", func(s *pipelinesv1.PipelineSpec) { s.Promotion.Manual = true })
	pipeline("same", "3.0.0", "3.0.0", nil)
	pipeline("suspended", "4.1.0", "4.0.0", func(s *pipelinesv1.PipelineSpec) { s.Suspend = true })
	pipeline("shown", "5.1.0", "5.0.0", func(s *pipelinesv1.PipelineSpec) { s.Promotion = nil })
	other := &former{c: c}
	other.locked.reconciled = map[string]int{}
	stopOther := inBackground(t, other.run)

	// The hub in dry run.
	user, err := plane.UserConfig(hubUser, "system:serviceaccounts", "system:authenticated")
	g.Expect(err).NotTo(HaveOccurred())
	logs := &lines{}
	dry := runHubWith(t, user, cloud, hub.Options{DryRun: true, Logger: logs.logger()})
	pipelineOf := func(name string) *pipelinesv1.Pipeline {
		p := &pipelinesv1.Pipeline{}
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: appsNamespace, Name: name}, p)).To(Succeed())
		return p
	}
	message := func(name string) func() string {
		return func() string {
			if d := pipelineOf(name).Status.DryRun; d != nil {
				return d.Message
			}
			return ""
		}
	}
	g.Eventually(message("due")).Should(Equal(`Dry run: 1.1.0 would be promoted from environment "dev" into "prod", which runs 1.0.0, by notification`))
	g.Eventually(message("manual")).Should(HaveSuffix("by notification, after an approval"))
	g.Eventually(message("same")).Should(Equal(pipelinesv1.DryRunNothingDue))
	g.Eventually(message("suspended")).Should(Equal("Dry run: no promotion is due; the Pipeline is suspended"))
	g.Eventually(message("shown")).Should(Equal(pipelinesv1.DryRunNothingDue))

	// A release while both run.
	redeploy(g, c, "same-dev", "3.1.0")
	g.Eventually(message("same")).WithTimeout(time.Minute).Should(ContainSubstring("3.1.0 would be promoted"))

	// The rest of the status is the other controller's, and none of the two answers the other without end.
	settled := func() map[string]string {
		all := map[string]string{}
		for _, name := range []string{"due", "manual", "same", "suspended", "shown"} {
			all[name] = pipelineOf(name).ResourceVersion
		}
		return all
	}
	var last map[string]string
	g.Eventually(func() bool {
		now := settled()
		same := maps.Equal(now, last)
		last = now
		return same
	}).WithPolling(time.Second).Should(BeTrue())
	g.Consistently(settled).WithTimeout(dryQuiet).WithPolling(time.Second).Should(Equal(last))
	for name := range last {
		p := pipelineOf(name)
		g.Expect(p.Status.Conditions).To(ConsistOf(And(HaveField("Type", "Ready"), HaveField("Message", "All clusters checked"))), name)
		for _, env := range p.Status.Environments {
			g.Expect(env.Agreed).To(BeNil())
			g.Expect(env.Targets).To(HaveEach(HaveField("Error", ContainSubstring("lastAppliedRevision"))))
		}
		g.Expect(other.counts(name)).To(BeNumerically("<", 12), name)
	}

	// One Event for each announcement.
	var events eventsv1.EventList
	announced := map[string]string{}
	g.Eventually(func() map[string]int {
		g.Expect(c.List(t.Context(), &events, client.InNamespace(appsNamespace))).To(Succeed())
		all := map[string]int{}
		for _, e := range events.Items {
			all[e.Regarding.Name+" "+e.Reason]++
		}
		return all
	}).Should(Equal(map[string]int{"due WouldPromote": 1, "manual WouldPromote": 1, "same WouldPromote": 1}))
	for name := range last {
		for _, env := range pipelineOf(name).Status.DryRun.Due() {
			announced[name+" "+env.Name] = env.Promotion.Revision
		}
	}
	g.Expect(announced).To(Equal(map[string]string{"due prod": "1.1.0", "manual prod": "2.1.0", "same prod": "3.1.0"}))

	// Nothing else was written, and nothing else was attempted.
	dry()
	g.Expect(versions()).To(Equal(before))
	var promotions capstanv1.PromotionList
	g.Expect(c.List(t.Context(), &promotions)).To(Succeed())
	g.Expect(promotions.Items).To(BeEmpty())
	g.Expect(waiting(t, queues)).To(Equal("1"), "the event is still in the queue")
	g.Expect(logs.all()).NotTo(ContainElement(ContainSubstring("a write was not sent")))
	audited, err := controlplane.ReadAudit(auditLog)
	g.Expect(err).NotTo(HaveOccurred())
	written := map[string]bool{}
	for _, r := range audited {
		if r.User != hubUser {
			continue
		}
		g.Expect(r.Code).NotTo(Or(Equal(401), Equal(403)), "%+v", r)
		if !slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
			written[strings.Trim(r.Verb+" "+r.Resource+"/"+r.Subresource, "/")] = true
		}
	}
	g.Expect(slices.Sorted(maps.Keys(written))).To(Equal([]string{"create events", "patch pipelines/status"}))

	// The switch.
	stopOther()
	rights()
	act := runHubWith(t, user, cloud, hub.Options{Logger: logr.Discard()})
	created := func() map[string]string {
		g.Expect(c.List(t.Context(), &promotions)).To(Succeed())
		all := map[string]string{}
		for _, p := range promotions.Items {
			all[p.Spec.Pipeline.Name+" "+p.Spec.Environment] = p.Spec.Revision
		}
		return all
	}
	g.Eventually(created).Should(Equal(announced))
	g.Eventually(func() bool {
		for name := range last {
			p := pipelineOf(name)
			if p.Status.DryRun != nil || p.Status.Environments["dev"].Agreed == nil {
				return false
			}
		}
		return true
	}).Should(BeTrue(), "the hub owns the status now")
	g.Consistently(created).WithTimeout(2 * time.Second).Should(Equal(announced))
	act()
}

// dryQuiet is longer than the time between two writes of a dry run.
const dryQuiet = 12 * time.Second

// redeploy changes what a HelmRelease runs.
func redeploy(g *WithT, c client.Client, namespace, revision string) {
	r := &helmv2.HelmRelease{}
	g.Expect(c.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "shop"}, r)).To(Succeed())
	r.Status.History[0].ChartVersion = revision
	g.Expect(c.Status().Update(context.Background(), r)).To(Succeed())
}

// inBackground runs a function until the returned one is called, or the test ends.
func inBackground(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// runHubWith runs a hub with a configuration until the returned function is called, or the test ends.
func runHubWith(t *testing.T, config *rest.Config, cloud *aws.Server, o hub.Options) (stop func()) {
	t.Helper()
	g := NewWithT(t)
	o.Config, o.AllowLoopback, o.Registerer = config, true, prometheus.NewRegistry()
	if cloud != nil {
		loaded, err := awsconfig.Load(t.Context(), awsconfig.Options{})
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(loaded.Close)
		o.AWS, o.Annotator.AWS = loaded, loaded
		o.Eventing.SQSSourceNamespaces = []string{hubNamespace}
	}
	h, err := hub.New(o)
	g.Expect(err).NotTo(HaveOccurred())
	return inBackground(t, h.Start)
}

// dryCloud is AWS with a queue in which an event waits.
func dryCloud(t *testing.T) (*sqsapi.Client, *aws.Server) {
	t.Helper()
	g := NewWithT(t)
	queues := sqs.New(sqs.Options{Seed: 1})
	cloud, err := aws.Start(aws.Options{Services: []aws.Service{queues}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(cloud.Stop)
	for name, value := range cloud.Env() {
		t.Setenv(name, value)
	}
	api := sqsapi.New(sqsapi.Options{Region: dryRegion, BaseEndpoint: sdk.String(cloud.URL()), Credentials: credentials.NewStaticCredentialsProvider(aws.AccessKeyID, aws.SecretAccessKey, "")})
	_, err = api.CreateQueue(t.Context(), &sqsapi.CreateQueueInput{QueueName: sdk.String(dryQueue)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(queues.Put(dryRegion, dryQueue, fmt.Sprintf(`{"version":"0","id":"e","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","account":%q,"region":%q,
		"time":"2026-01-10T10:00:00Z","resources":[],"detail":{"instance-id":"i-00000000000000001","instance-action":"terminate"}}`, dryAccount, dryRegion))).To(BeNil())
	return api, cloud
}

// waiting returns how many messages wait in the queue.
func waiting(t *testing.T, api *sqsapi.Client) string {
	t.Helper()
	g := NewWithT(t)
	at, err := api.GetQueueUrl(t.Context(), &sqsapi.GetQueueUrlInput{QueueName: sdk.String(dryQueue)})
	g.Expect(err).NotTo(HaveOccurred())
	const waits = sqstypes.QueueAttributeNameApproximateNumberOfMessages
	is, err := api.GetQueueAttributes(t.Context(), &sqsapi.GetQueueAttributesInput{QueueUrl: at.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{waits}})
	g.Expect(err).NotTo(HaveOccurred())
	return is.Attributes[string(waits)]
}

// lines are what was logged.
type lines struct {
	mu     sync.Mutex
	locked []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.locked = append(l.locked, prefix+" "+args)
	}, funcr.Options{})
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.locked)
}
