package bench

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

const (
	// patchers send the bare patches: as many as the annotator has workers of a kind.
	patchers = 16
	// regions of the node groups.
	regions = 20
	// atLeast is the part of the bare rate that the annotator has to reach.
	atLeast = 0.6
)

// nodeGroups is a management cluster with MachineDeployments over many regions.
type nodeGroups struct {
	g     *WithT
	plane *controlplane.ControlPlane
	c     client.Client
	cloud *aws.Server
	names []string
}

func newNodeGroups(t *testing.T, many int) *nodeGroups {
	t.Helper()
	n := &nodeGroups{g: NewWithT(t)}
	n.g.SetDefaultEventuallyTimeout(5 * time.Minute)
	n.g.SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	var err error
	n.plane, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("cluster-api", "cluster-api-provider-aws")})
	n.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = n.plane.Stop() })
	config := n.plane.Config()
	config.QPS = -1
	n.c, err = client.New(config, client.Options{})
	n.g.Expect(err).NotTo(HaveOccurred())

	var all []string
	for i := range regions {
		all = append(all, fmt.Sprintf("xx-north-%d", i+1))
	}
	n.cloud, err = aws.Start(aws.Options{Services: []aws.Service{ec2.New(all...)}})
	n.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(n.cloud.Stop)
	for name, value := range n.cloud.Env() {
		t.Setenv(name, value)
	}
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	kinds := []string{"m5.large", "g5.xlarge", "c6g.xlarge", "p4d.24xlarge"}
	for i, region := range all {
		name := fmt.Sprintf("c-%d", i)
		n.create(t, infrastructure+"/v1beta2", "AWSCluster", name, map[string]any{"region": region})
		n.create(t, infrastructure+"/v1beta2", "AWSMachineTemplate", name,
			map[string]any{"template": map[string]any{"spec": map[string]any{"instanceType": kinds[i%len(kinds)]}}})
		n.create(t, "cluster.x-k8s.io/v1beta2", "Cluster", name,
			map[string]any{"infrastructureRef": map[string]any{"apiGroup": infrastructure, "kind": "AWSCluster", "name": name}})
	}
	for i := range many {
		n.names = append(n.names, fmt.Sprintf("md-%d", i))
	}
	n.every(func(i int, name string) {
		cluster := fmt.Sprintf("c-%d", i%regions)
		n.create(t, "cluster.x-k8s.io/v1beta2", "MachineDeployment", name, map[string]any{
			"clusterName": cluster, "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{
				"clusterName": cluster, "bootstrap": map[string]any{"dataSecretName": "x"},
				"infrastructureRef": map[string]any{"apiGroup": infrastructure, "kind": "AWSMachineTemplate", "name": cluster},
			}},
		})
	})
	return n
}

func (n *nodeGroups) create(t *testing.T, apiVersion, kind, name string, spec map[string]any) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(metav1.NamespaceDefault)
	u.SetName(name)
	n.g.Expect(n.c.Create(t.Context(), u)).To(Succeed())
}

// every MachineDeployment, so many at once as there are patchers.
func (n *nodeGroups) every(do func(int, string)) {
	var group sync.WaitGroup
	for p := range patchers {
		group.Go(func() {
			for i := p; i < len(n.names); i += patchers {
				do(i, n.names[i])
			}
		})
	}
	group.Wait()
}

// bare is the rate, in patches a second, of the least patch of every MachineDeployment by
// the client that the annotator has.
func (n *nodeGroups) bare(t *testing.T, key string) float64 {
	t.Helper()
	config := n.plane.Config()
	config.QPS = -1
	patches, err := metadata.NewForConfig(config)
	n.g.Expect(err).NotTo(HaveOccurred())
	groups := patches.Resource(schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machinedeployments"}).Namespace(metav1.NamespaceDefault)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:""}}}`, key)
	began := time.Now()
	n.every(func(_ int, name string) {
		_, err := groups.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		n.g.Expect(err).NotTo(HaveOccurred())
	})
	return float64(len(n.names)) / time.Since(began).Seconds()
}

// counter is the sum of a counter's values.
func counter(g *WithT, from prometheus.Gatherer, name string) int {
	families, err := from.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return int(sum)
}

// TestAnnotator: 5,000 MachineDeployments over 20 regions, compared with the bare patches of
// the same objects in the same run; then a second reconciliation of all of them.
func TestAnnotator(t *testing.T) {
	many := count(200, 5000)
	n := newNodeGroups(t, many)
	before := n.bare(t, "bench/before")

	registry := prometheus.NewRegistry()
	config, err := awsconfig.Load(t.Context(), awsconfig.Options{})
	n.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(config.Close)
	alone, err := hub.NewAlone(hub.Options{Config: n.plane.Config(), Registerer: registry, Logger: logr.Discard(), Annotator: hub.Annotator{AWS: config}})
	n.g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- alone.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		n.g.Eventually(ended).Should(Receive(BeNil()))
	})
	written := func() int { return counter(n.g, registry, "capstan_annotator_patches_total") }
	n.g.Eventually(written).Should(BeNumerically(">=", many))
	rate := float64(many) / time.Since(began).Seconds()
	looked := func() int { return counter(n.g, metrics.Registry, "controller_runtime_reconcile_total") }
	asked := n.cloud.Count(aws.Match{})
	n.g.Expect(asked).To(Equal(regions), "one listing of each region")

	// A change that reconciles all of them without effect: pods are not counted
	// anyway.
	n.settle(looked)
	start := looked()
	again := time.Now()
	for i := range regions {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("cluster.x-k8s.io/v1beta2")
		u.SetKind("Cluster")
		u.SetNamespace(metav1.NamespaceDefault)
		u.SetName(fmt.Sprintf("c-%d", i))
		n.g.Expect(n.c.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"capstan.dev/max-pods":"off"}}}`)))).To(Succeed())
	}
	n.g.Eventually(looked).Should(BeNumerically(">=", start+many))
	second := time.Since(again)
	patched, calls := written()-many, n.cloud.Count(aws.Match{})-asked
	n.g.Expect(patched).To(BeZero())
	n.g.Expect(calls).To(BeZero())

	after := n.bare(t, "bench/after")
	bare := (before + after) / 2
	verdict := "ok"
	if rate < atLeast*bare {
		verdict = "MISSED"
	}
	fmt.Fprintf(os.Stderr, "| %d MachineDeployments annotated, of the bare PATCH rate (%.0f/s of %.0f/s) | %.2f | ≥ %.1f | %s |\n", many, rate, bare, rate/bare, atLeast, verdict)
	report("second pass, patches", float64(patched), 0, "")
	report("second pass, EC2 calls", float64(calls), 0, "")
	report("second pass, all reconciled again", second.Seconds(), float64(many)/bare, "s")
	report("EC2 calls for each region", float64(asked)/regions, 1, "")
}

// settle waits until no reconciliation runs: the events of the patches were processed.
func (n *nodeGroups) settle(looked func() int) {
	last := -1
	n.g.Eventually(func() bool {
		now := looked()
		same := now == last
		last = now
		return same
	}).WithPolling(500 * time.Millisecond).Should(BeTrue())
}
