package pipeline

import (
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"testing"
	"unsafe"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// large is a Pipeline of twenty targets, as an API server delivers it.
func large(t testing.TB, name string) []byte {
	p := pipelineNamed(name)
	env := pipelinesv1.Environment{Name: "all"}
	status := &pipelinesv1.EnvironmentStatus{}
	for i := range 20 {
		ref := &pipelinesv1.CrossNamespaceClusterReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Namespace: "clusters", Name: fmt.Sprintf("cluster-%04d", i)}
		env.Targets = append(env.Targets, pipelinesv1.Target{Namespace: "shop", ClusterRef: ref})
		status.Targets = append(status.Targets, pipelinesv1.TargetStatus{
			ClusterAppRef: pipelinesv1.ClusterAppReference{LocalAppReference: p.Spec.AppRef, ClusterRef: ref}, Ready: i > 0, Revision: "6.6.1",
			ObservedTime: &metav1.Time{},
		})
	}
	status.Targets[0].Reason, status.Targets[0].Message = "InstallFailed", "the chart is not there"
	// A target that the spec had before, and one that was added.
	env.Targets[3].ClusterRef, status.Targets[3].ClusterAppRef.ClusterRef = &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "new"}, status.Targets[4].ClusterAppRef.ClusterRef
	env.Targets = env.Targets[:19]
	p.Spec.Environments = []pipelinesv1.Environment{env, {Name: "none"}, {Name: "local", Targets: []pipelinesv1.Target{{Namespace: "here"}}}}
	p.Status.Environments = map[string]*pipelinesv1.EnvironmentStatus{"all": status, "local": {Targets: []pipelinesv1.TargetStatus{{}}}, "former": {}}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestCompact: the value is the same, and the texts are shared.
func TestCompact(t *testing.T) {
	g := NewWithT(t)
	decode := func() *pipelinesv1.Pipeline {
		p := &pipelinesv1.Pipeline{}
		g.Expect(json.Unmarshal(large(t, "shop"), p)).To(Succeed())
		return p
	}
	one, other, plain := decode(), decode(), decode()
	Compact(one)
	Compact(other)
	g.Expect(one).To(Equal(plain))
	text := func(p *pipelinesv1.Pipeline) *byte {
		return unsafe.StringData(p.Status.Environments["all"].Targets[7].Revision)
	}
	g.Expect(text(one)).To(BeIdenticalTo(text(other)))
	targets := one.Status.Environments["all"].Targets
	g.Expect(targets[1].ClusterAppRef.ClusterRef).To(BeIdenticalTo(one.Spec.Environments[0].Targets[1].ClusterRef))
	g.Expect(targets[3].ClusterAppRef.ClusterRef.Name).To(Equal("cluster-0004"), "a status of another spec")

	// Clients modify copies.
	changed := one.DeepCopy()
	changed.Spec.Environments[0].Targets[1].ClusterRef.Name = "else"
	g.Expect(changed.Status.Environments["all"].Targets[1].ClusterAppRef.ClusterRef.Name).To(Equal("cluster-0001"))
	Compact(&pipelinesv1.Pipeline{})
}

// BenchmarkCompact prints the bytes that a cache keeps of a target, without and with Compact.
func BenchmarkCompact(b *testing.B) {
	raw := large(b, "shop")
	for name, do := range map[string]func(*pipelinesv1.Pipeline){"decoded": func(*pipelinesv1.Pipeline) {}, "compact": Compact} {
		b.Run(name, func(b *testing.B) {
			kept := make([]*pipelinesv1.Pipeline, 0, b.N)
			var before, after goruntime.MemStats
			goruntime.GC()
			goruntime.ReadMemStats(&before)
			for b.Loop() {
				p := &pipelinesv1.Pipeline{}
				if err := json.Unmarshal(raw, p); err != nil {
					b.Fatal(err)
				}
				do(p)
				kept = append(kept, p)
			}
			goruntime.GC()
			goruntime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(20*len(kept)), "bytes/target")
			goruntime.KeepAlive(kept)
		})
	}
}
