package annotator_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/annotator"
	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/ports"
)

// without is what EC2 offers but for one type.
func without(name string) []types.InstanceTypeInfo {
	var rest []types.InstanceTypeInfo
	for _, info := range ec2.Fixtures() {
		if string(info.InstanceType) != name {
			rest = append(rest, info)
		}
	}
	return rest
}

// ready makes what is behind a MachineDeployment of a type, and it.
func (w *world) ready(instanceType string) *unstructured.Unstructured {
	w.Helper()
	w.usual(region)
	w.create(w.template("t", instanceType))
	md := w.deployment("md", "t")
	w.create(md)
	return md
}

// FR7.1. An unknown type is reported once, nothing is written, and there are no retries in a
// hot loop. When EC2 releases the type, the group is annotated.
func TestUnknownTypeThenReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.aws.timings.Negative = 5 * time.Second // Longer than an Event takes.
	w.aws.ec2.Offer(region, without("g5.xlarge")...)
	md := w.ready("g5.xlarge")
	w.start()
	unknown := `Warning FailedUpdate InstanceTypeUnknown: EC2 has no instance type "g5.xlarge" in region eu-west-1`
	w.awaitsEvents("md").Should(ConsistOf(HavePrefix(unknown)))
	asked := w.aws.describes(region)
	w.g.Consistently(func() int { return w.aws.describes(region) }, 500*time.Millisecond).Should(Equal(asked), "the answer is remembered")
	w.g.Expect(w.annotations(md)).To(BeEmpty())
	w.aws.ec2.Offer(region, ec2.Fixtures()...)
	w.awaits(md).Should(equal(g5(region)))
	w.awaitsEvents("md").Should(ConsistOf(HavePrefix(unknown), HavePrefix("Normal CapacityResolved Resolved: ")))
}

// A type that EC2 retires is still that of the nodes: what is annotated stays, through a
// restart as well.
func TestRetiredTypeKeepsItsAnnotations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	md := w.ready("p3.2xlarge")
	stop := w.start()
	w.awaits(md).Should(And(HaveKeyWithValue(annotation.CPU, "8"), HaveKeyWithValue(annotation.Memory, "62464Mi")))
	before := w.annotations(md)
	stop()
	w.aws.ec2.Offer(region, without("p3.2xlarge")...)
	w.start()
	w.awaitsEvents("md").Should(ConsistOf(ContainSubstring("InstanceTypeUnknown")))
	w.g.Expect(w.annotations(md)).To(Equal(before))
}

// EC2 does not answer, throttles or denies; when it answers, the group is annotated. The
// Event of a denial names the action; throttling is reported only if it continues.
func TestEC2Fails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule aws.Rule
		says string
	}{
		"denied":       {aws.Rule{Fault: &aws.Denied}, "Warning ReconcileError AWSAccessDenied: AWS denies ec2:DescribeInstanceTypes in region eu-west-1"},
		"throttled":    {aws.Rule{Fault: &aws.Throttled}, "Warning ReconcileError AWSThrottled: AWS throttles calls in region eu-west-1"},
		"not opted in": {aws.Rule{Fault: &aws.OptInRequired}, "Warning ReconcileError RegionNotOptedIn: region eu-west-1 is not enabled for the AWS account"},
		"internal":     {aws.Rule{Fault: &aws.InternalError}, "Warning ReconcileError AWSUnavailable: EC2 in region eu-west-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newest)
			heal := w.aws.Inject(c.rule)
			md := w.ready("m5.large")
			w.start()
			w.awaitsEvents("md").Should(ConsistOf(HavePrefix(c.says)))
			w.g.Expect(w.annotations(md)).To(BeEmpty())
			heal()
			w.awaits(md).Should(equal(m5(region)))
			w.awaitsEvents("md").Should(ConsistOf(HavePrefix(c.says), HavePrefix("Normal CapacityResolved Resolved: ")), "one Event for one trouble")
			w.g.Eventually(func() float64 { return w.metric("capstan_annotator_problems") }).Should(BeZero())
		})
	}
}

// Nothing listens where EC2 is to be; when something does, the group is annotated.
func TestEC2RefusesConnections(t *testing.T) {
	newest.Get(t)  // Its processes outlive the test.
	leaks.AtEnd(t) // The test is not parallel: no other annotator runs.
	w := newWorld(t, newest)
	address, err := ports.Free()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.aws.loadOptions = append(w.aws.loadOptions, config.WithBaseEndpoint("http://"+address))
	md := w.ready("m5.large")
	w.start()
	w.awaitsEvents("md").Should(ConsistOf("Warning ReconcileError AWSUnavailable: EC2 in region eu-west-1 is unreachable or returned an invalid answer"))
	w.g.Expect(w.annotations(md)).To(BeEmpty())
	w.g.Expect(w.aws.describes(region)).To(BeZero())

	behind, err := url.Parse(w.aws.URL())
	w.g.Expect(err).NotTo(HaveOccurred())
	proxy := httputil.NewSingleHostReverseProxy(behind)
	proxy.Transport = &http.Transport{DisableKeepAlives: true}
	server := &httptest.Server{Config: &http.Server{Handler: proxy}}
	server.Listener, err = net.Listen("tcp", address)
	w.g.Expect(err).NotTo(HaveOccurred())
	server.Start()
	t.Cleanup(server.Close)
	w.awaits(md).Should(equal(m5(region)))
	w.awaitsEvents("md").Should(ConsistOf(HavePrefix("Warning ReconcileError AWSUnavailable"), HavePrefix("Normal CapacityResolved")), "one Event for one trouble, and one for its end")
}

// While EC2 does not answer, waiting groups are not reconciled repeatedly. The failure and the
// answer trigger a reconciliation.
func TestWhatWaitsForEC2IsWoken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.aws.timings.Call = 8 * time.Second // Much longer than the wait below.
	heal := w.aws.Inject(aws.Rule{Hang: true})
	looks := &gets{}
	w.options.Catalogue = looks
	md := w.ready("m5.large")
	w.start()
	w.g.Eventually(func() int { return w.aws.UnderWay(aws.Match{Service: "ec2"}) }).Should(Equal(1))
	w.g.Eventually(looks.Load).Should(BeNumerically(">=", 1))
	before := looks.Load()
	w.g.Consistently(looks.Load, 2*time.Second).Should(BeNumerically("<=", before+1), "at most the look of an object that came just now")
	heal() // The call that hangs still fails.
	w.g.Eventually(looks.Load).Should(BeNumerically(">", before+1), "the failure wakes")
	w.awaits(md).Should(equal(m5(region)))
}

// gets counts the questions to a catalogue.
type gets struct {
	catalogue.Catalogue
	atomic.Int64
}

func (c *gets) Get(ctx context.Context, q catalogue.Query) (catalogue.Answer, error) {
	c.Add(1)
	return c.Catalogue.Get(ctx, q)
}

// A region of which EC2 does not answer holds up no other.
func TestARegionThatHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.aws.Inject(aws.Rule{Match: aws.Match{Region: "us-west-2"}, Hang: true})
	w.start()
	w.create(w.capiCluster("AWSCluster", ""))
	w.create(w.template("t", "m5.large"))
	for i := range 40 { // More than there are workers.
		stuck := w.deployment(fmt.Sprintf("stuck-%d", i), "t")
		stuck.SetAnnotations(map[string]string{annotator.RegionAnnotation: "us-west-2"})
		w.create(stuck)
	}
	w.g.Eventually(func() int { return w.aws.UnderWay(aws.Match{Region: "us-west-2"}) }).Should(Equal(1), "one listing")
	md := w.deployment("md", "t")
	md.SetAnnotations(map[string]string{annotator.RegionAnnotation: region})
	w.create(md)
	w.awaits(md).Should(HaveKeyWithValue(annotation.CPU, "2"))
}

// A name that is no region's.
func TestWrongRegion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.create(w.capiCluster("AWSCluster", ""))
	w.create(w.awsCluster("Ireland"))
	w.create(w.template("t", "m5.large"))
	md := w.deployment("md", "t")
	w.create(md)
	w.start()
	w.awaitsEvents("md").Should(ConsistOf(HavePrefix(`Warning FailedUpdate RegionUnknown: "Ireland" is not a region of AWS`)))
	w.patch(w.awsCluster(""), `{"spec":{"region":"eu-west-1"}}`)
	w.awaits(md).Should(equal(m5(region)))
}

// Half an answer is none: no zero is ever written.
func TestHalfAnswers(t *testing.T) {
	t.Parallel()
	for name, half := range map[string]func(*types.InstanceTypeInfo){
		"memory": func(i *types.InstanceTypeInfo) { i.MemoryInfo = nil },
		"vCPUs":  func(i *types.InstanceTypeInfo) { i.VCpuInfo = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newest)
			info := ec2.Fixture("m5.large")
			half(&info)
			w.aws.ec2.Offer(region, append(without("m5.large"), info)...)
			md := w.ready("m5.large")
			w.start()
			w.awaitsEvents("md").Should(ConsistOf(And(HavePrefix("Warning FailedUpdate InstanceTypeIncomplete:"), ContainSubstring(name))))
			w.g.Expect(w.annotations(md)).To(BeEmpty())
		})
	}
}

// A Mac has no architecture that Kubernetes runs on.
func TestNoArchitecture(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	md := w.ready("mac1.metal")
	w.start()
	w.awaits(md).Should(HaveKeyWithValue(annotation.Labels, And(ContainSubstring("kubernetes.io/os=linux"), Not(ContainSubstring("arch")))))
	w.awaitsEvents("md").Should(ConsistOf(HavePrefix("Warning FailedUpdate UnknownArchitecture: EC2 lists no architecture of mac1.metal")))
}

// A value of a user stays, and is reported if an autoscaler cannot read it.
func TestMalformedForeignValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual(region)
	w.create(w.template("t", "m5.large"))
	md := w.deployment("md", "t")
	md.SetAnnotations(map[string]string{annotation.Memory: "500mb"})
	w.create(md)
	w.start()
	w.awaits(md).Should(And(HaveKeyWithValue(annotation.Memory, "500mb"), HaveKeyWithValue(annotation.CPU, "2")))
	w.awaitsEvents("md").Should(ConsistOf(
		HavePrefix(`Warning InvalidCapacityAnnotation InvalidAnnotation: capacity.cluster-autoscaler.kubernetes.io/memory="500mb" is not a quantity`),
		"Normal CapacityOverridden Overridden: values set by a user are kept instead of the computed values: capacity.cluster-autoscaler.kubernetes.io/memory"))
	w.patch(md, `{"metadata":{"annotations":{"`+annotation.Memory+`":null}}}`)
	w.awaits(md).Should(equal(m5(region)))
}

// Two writers of the labels: what each adds is there in the end.
func TestTwoWritersRaceOnTheLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.start()
	w.usual(region)
	w.create(w.template("g", "g5.xlarge"))
	w.create(w.template("m", "m5.large"))
	md := w.deployment("md", "g")
	w.create(md)
	w.awaits(md).Should(HaveKey(annotation.Labels))
	const rounds = 40
	add := func(token string) error {
		for {
			u := md.DeepCopy()
			if err := w.Get(w.Context(), client.ObjectKeyFromObject(md), u); err != nil {
				return err
			}
			annotations := u.GetAnnotations()
			annotations[annotation.Labels] += "," + token
			u.SetAnnotations(annotations)
			if err := w.Update(w.Context(), u); !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	var group sync.WaitGroup
	errs := make(chan error, 2)
	group.Go(func() {
		var err error
		for i := range rounds {
			err = errors.Join(err, add(fmt.Sprintf("user-%d=x", i)))
		}
		errs <- err
	})
	group.Go(func() { // Each swap has the annotator write the labels.
		var err error
		for i := range rounds {
			patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"infrastructureRef":{"name":%q}}}}}`, []string{"m", "g"}[i%2])
			err = errors.Join(err, w.Patch(w.Context(), md.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch))))
		}
		errs <- err
	})
	group.Wait()
	w.g.Expect(<-errs).To(Succeed())
	w.g.Expect(<-errs).To(Succeed())
	w.awaits(md).Should(HaveKeyWithValue(annotation.Labels, ContainSubstring("instance-type=g5.xlarge")))
	labels := strings.Split(w.annotations(md)[annotation.Labels], ",")
	for i := range rounds {
		w.g.Expect(labels).To(ContainElement(fmt.Sprintf("user-%d=x", i)))
	}
}

// A template of many MachineDeployments: a change of other fields triggers no reconciliation. A
// change of the instance type is written once to each, with one call to EC2.
func TestManyOnOneTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	stop := w.start()
	w.usual(region)
	template := w.template("t", "m5.large")
	w.create(template)
	many := 50
	if os.Getenv("CAPSTAN_SOAK") != "" {
		many = 200
	}
	var mds []*unstructured.Unstructured
	for i := range many {
		md := w.deployment(fmt.Sprintf("md-%d", i), "t")
		w.create(md)
		mds = append(mds, md)
	}
	w.g.Eventually(w.written).Should(BeNumerically("==", many))
	w.g.Expect(w.aws.describes(region)).To(BeNumerically("<=", 1), "one page, one listing")
	w.patch(template, `{"metadata":{"labels":{"a":"b"}}}`)
	w.patch(template, `{"spec":{"template":{"spec":{"instanceType":"m5.metal"}}}}`)
	w.g.Eventually(w.written).Should(BeNumerically("==", 2*many))
	for _, md := range mds[:3] {
		w.g.Expect(w.annotations(md)).To(HaveKeyWithValue(annotation.CPU, "96"))
	}
	// A second pass, by another process, writes nothing.
	stop()
	versions := w.versions()
	w.start()
	w.g.Eventually(func() float64 { return w.metric("capstan_annotator_patches_total") }).Should(BeNumerically("==", 2*many))
	late := w.deployment("late", "t") // Which comes after all others in the queue.
	w.create(late)
	w.awaits(late).Should(HaveKey(annotation.CPU))
	after := w.versions()
	delete(after, "late")
	w.g.Expect(after).To(Equal(versions))
}

// versions of all MachineDeployments.
func (w *world) versions() map[string]string {
	w.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("cluster.x-k8s.io/" + w.core)
	list.SetKind("MachineDeploymentList")
	w.g.Expect(w.List(w.Context(), list, client.InNamespace(w.namespace))).To(Succeed())
	all := map[string]string{}
	for _, u := range list.Items {
		all[u.GetName()] = u.GetResourceVersion()
	}
	return all
}

// The role of a cluster's identity is used where the namespace may use it and the hub
// may assume it; else the hub asks by its own identity.
func TestIdentityOfTheCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	infra := w.awsCluster(region)
	identity := func(name, arn string, namespaces map[string]any) {
		spec := map[string]any{
			"roleARN": arn, "sourceIdentityRef": map[string]any{"kind": "AWSClusterControllerIdentity", "name": "default"},
		}
		if namespaces != nil {
			spec["allowedNamespaces"] = namespaces
		}
		w.create(object(infrastructure+"/v1beta2", "AWSClusterRoleIdentity", "", w.namespace+"-"+name, spec))
	}
	identity("good", assumable.ARN, map[string]any{"list": []any{w.namespace}})
	identity("refused", "arn:aws:iam::222222222222:role/other", map[string]any{})
	identity("elsewhere", assumable.ARN, map[string]any{"list": []any{"another"}})
	identity("nowhere", assumable.ARN, map[string]any{"list": []any{}})
	identity("unset", assumable.ARN, nil)
	identity("selected", assumable.ARN, map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": w.namespace}}})
	cluster := w.capiCluster("AWSCluster", "")
	w.create(cluster)
	w.create(w.template("t", "m5.large"))
	w.create(infra)
	w.start() // Now: an identity that the hub has not heard of yet counts for nothing.
	use := func(name, region string) {
		w.patch(infra, fmt.Sprintf(`{"spec":{"region":%q,"identityRef":{"kind":"AWSClusterRoleIdentity","name":%q}}}`, region, w.namespace+"-"+name))
	}
	callers := func(region string) func() []string {
		return func() []string {
			var all []string
			for _, r := range w.aws.Records(aws.Match{Service: "ec2", Region: region}) {
				all = append(all, r.Caller)
			}
			return all
		}
	}
	use("good", "us-east-1")
	md := w.deployment("md", "t")
	w.create(md)
	w.awaits(md).Should(equal(m5("us-east-1")))
	w.g.Expect(callers("us-east-1")()).To(ContainElement(ContainSubstring("assumed-role/capa/")))
	use("refused", "us-west-2")
	w.awaits(md).Should(equal(m5("us-west-2")))
	w.g.Expect(callers("us-west-2")()).To(HaveEach(aws.RootARN))
	use("elsewhere", "eu-central-1")
	w.awaits(md).Should(equal(m5("eu-central-1")))
	w.g.Expect(callers("eu-central-1")()).To(HaveEach(aws.RootARN))
	use("nowhere", "eu-west-1")
	w.awaits(md).Should(equal(m5("eu-west-1")))
	w.g.Expect(callers("eu-west-1")()).To(HaveEach(aws.RootARN))
	use("unset", "ap-south-1")
	w.awaits(md).Should(equal(m5("ap-south-1")))
	w.g.Expect(callers("ap-south-1")()).To(HaveEach(aws.RootARN))
	use("selected", "ap-northeast-1")
	w.awaits(md).Should(equal(m5("ap-northeast-1")))
	w.g.Expect(callers("ap-northeast-1")()).To(HaveEach(aws.RootARN), "the hub does not read Namespaces")
	w.g.Expect(w.events("md")).To(BeEmpty())
	// The identity counts also where an annotation names the region. (Until both changes are seen,
	// there may be an Event.)
	w.patch(cluster, `{"metadata":{"annotations":{"`+annotator.RegionAnnotation+`":"sa-east-1"}}}`)
	w.patch(infra, fmt.Sprintf(`{"spec":{"region":null,"identityRef":{"name":%q}}}`, w.namespace+"-good"))
	w.awaits(md).Should(equal(m5("sa-east-1")))
	w.g.Expect(callers("sa-east-1")()).To(ContainElement(ContainSubstring("assumed-role/capa/")))
}

// A role is assumed with the role of its identity's source, if each identity of the chain may be used in the namespace; else the hub
// asks by its own identity.
func TestIdentityWithASource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	infra := w.awsCluster(region)
	identity := func(name, arn string, namespaces map[string]any, source string) {
		spec := map[string]any{"roleARN": arn, "allowedNamespaces": namespaces}
		if source != "" {
			spec["sourceIdentityRef"] = map[string]any{"kind": "AWSClusterRoleIdentity", "name": w.namespace + "-" + source}
		}
		w.create(object(infrastructure+"/v1beta2", "AWSClusterRoleIdentity", "", w.namespace+"-"+name, spec))
	}
	all, elsewhere := map[string]any{}, map[string]any{"list": []any{"another"}}
	identity("source", assumable.ARN, all, "")
	identity("member", member.ARN, all, "source")
	identity("direct", member.ARN, all, "")
	identity("source-elsewhere", assumable.ARN, elsewhere, "")
	identity("member-elsewhere", member.ARN, all, "source-elsewhere")
	w.create(w.capiCluster("AWSCluster", ""))
	w.create(w.template("t", "m5.large"))
	w.create(infra)
	w.start()
	md := w.deployment("md", "t")
	w.create(md)
	for _, c := range []struct{ identity, region, caller string }{
		{"member", "us-east-1", "assumed-role/member/"},
		{"direct", "us-west-2", aws.RootARN},
		{"member-elsewhere", "eu-central-1", aws.RootARN},
	} {
		w.patch(infra, fmt.Sprintf(`{"spec":{"region":%q,"identityRef":{"kind":"AWSClusterRoleIdentity","name":%q}}}`, c.region, w.namespace+"-"+c.identity))
		w.awaits(md).Should(equal(m5(c.region)))
		records := w.aws.Records(aws.Match{Service: "ec2", Region: c.region})
		w.g.Expect(records).NotTo(BeEmpty())
		w.g.Expect(records).To(ContainElement(HaveField("Caller", ContainSubstring(c.caller))), c.identity)
		if c.caller == aws.RootARN {
			w.g.Expect(records).To(HaveEach(HaveField("Caller", aws.RootARN)), c.identity)
		}
	}
}

// Must show 2, as far as an object: every type of the fixtures has exactly the values
// that were worked out of it.
func TestEveryTypeOfTheFixtures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.start()
	w.usual(region)
	derived := ec2.DerivedFixtures()
	for name := range derived {
		at := strings.ReplaceAll(name, ".", "-")
		w.create(w.template(at, name))
		w.create(w.deployment(at, at))
	}
	for name, want := range derived {
		md := w.deployment(strings.ReplaceAll(name, ".", "-"), "")
		w.awaits(md).Should(And(HaveKeyWithValue(annotation.CPU, want.CPU), HaveKeyWithValue(annotation.Memory, want.Memory),
			HaveKeyWithValue(annotation.LegacyVCPU, want.LegacyVCPU), HaveKeyWithValue(annotation.LegacyMemoryMb, want.LegacyMemory)), name)
		got := w.annotations(md)
		if want.GPUType != nil {
			w.g.Expect(got).To(And(HaveKeyWithValue(annotation.GPUType, *want.GPUType), HaveKeyWithValue(annotation.GPUCount, fmt.Sprint(want.GPUCount)),
				HaveKeyWithValue(annotation.LegacyGPU, fmt.Sprint(want.GPUCount))), name)
		} else {
			w.g.Expect(got).To(HaveKeyWithValue(annotation.LegacyGPU, "0"), name)
		}
		if want.Architecture != nil {
			w.g.Expect(got[annotation.Labels]).To(ContainSubstring("kubernetes.io/arch="+*want.Architecture), name)
		}
	}
}

// The functions that the requirements fix, by their names and error texts.
func TestTheProposalsFunctions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oldest)
	ctx := context.Background()
	md := w.deployment("md", "t")
	_, err := annotator.ResolveAWSMachineTemplate(ctx, w.Client, w.deployment("md", ""))
	w.g.Expect(err).To(MatchError("infrastructureRef.name is empty"))
	_, err = annotator.ResolveAWSMachineTemplate(ctx, w.Client, w.group("MachineDeployment", "md", w.ref(infrastructure, "AWSMachinePool", "x")))
	w.g.Expect(err).To(MatchError("expected AWSMachineTemplate, got AWSMachinePool"))
	for _, version := range []string{"", "v1beta2", "a/b/c"} {
		_, err = annotator.ResolveAWSMachineTemplate(ctx, w.Client, w.group("MachineDeployment", "md", map[string]any{
			"apiVersion": version, "kind": "AWSMachineTemplate", "name": "t",
		}))
		w.g.Expect(err).To(MatchError(`expected AWSMachineTemplate of infrastructure.cluster.x-k8s.io, got group ""`), version)
	}
	_, err = annotator.ResolveAWSMachineTemplate(ctx, w.Client, md)
	w.g.Expect(err).To(MatchError(HavePrefix(fmt.Sprintf("failed to fetch AWSMachineTemplate %s/t: ", w.namespace))))
	w.create(w.template("t", "m5.large"))
	template, err := annotator.ResolveAWSMachineTemplate(ctx, w.Client, md)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(annotator.ExtractInstanceType(template)).To(Equal("m5.large"))
	_, err = annotator.ExtractInstanceType(w.template("t", ""))
	w.g.Expect(err).To(MatchError("instanceType is empty in AWSMachineTemplate"))
	w.g.Expect(err).To(MatchError(annotator.ErrNoInstanceType))

	_, err = annotator.ResolveRegion(ctx, w.Client, md)
	w.g.Expect(err).To(MatchError("unable to determine AWS region from AWSCluster or annotation"))
	w.g.Expect(annotator.RegionAnnotation).To(Equal("capa.infrastructure.cluster.x-k8s.io/region"))
	// A passing error is not absence: it would end in another region's figures.
	md.SetAnnotations(map[string]string{annotator.RegionAnnotation: "us-east-1"})
	w.g.Expect(annotator.ResolveRegion(ctx, w.Client, md)).To(Equal("us-east-1"))
	gone, cancel := context.WithTimeout(ctx, -time.Second)
	defer cancel()
	_, err = annotator.ResolveRegion(gone, w.Client, md)
	w.g.Expect(err).To(MatchError(context.DeadlineExceeded))
}

// If another client reverts the labels at once, as the topology controller of a ClusterClass
// does, the next write waits, and the contest is reported.
func TestSomebodyUndoesTheLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.start()
	md := w.ready("m5.large")
	w.awaits(md).Should(equal(m5(region)))
	watching, err := client.NewWithWatch(w.config, client.Options{Scheme: scheme()})
	w.g.Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithTimeout(w.Context(), 4*time.Second)
	defer stop()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(md.GroupVersionKind())
	changes, err := watching.Watch(ctx, list, client.InNamespace(w.namespace))
	w.g.Expect(err).NotTo(HaveOccurred())
	undone := 0
	for change := range changes.ResultChan() { // It is closed when the time is over.
		u, is := change.Object.(*unstructured.Unstructured)
		if is && u.GetAnnotations()[annotation.Labels] != "team=ml" {
			w.patch(md, `{"metadata":{"annotations":{"`+annotation.Labels+`":"team=ml"}}}`)
			undone++
		}
	}
	w.g.Expect(undone).To(BeNumerically("<=", 7), "written at once, then after 1 s, 2 s and so on")
	w.awaitsEvents("md").Should(ContainElement(HavePrefix("Warning FailedUpdate Undone: another client, such as GitOps or the topology controller of the ClusterClass, repeatedly reverts " + annotation.Labels)))
	w.awaits(md).Should(HaveKeyWithValue(annotation.Labels, ContainSubstring("kubernetes.io/os=linux")), "who stops is caught up with")
}
