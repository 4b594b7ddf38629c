package dashboard

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// large is a fleet of 500 clusters and 200 Pipelines over them.
func large() *view.Facts {
	const clusters, pipelines = 500, 200
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f := &view.Facts{Now: now, Leads: true, Observed: map[view.Cluster]view.Observed{}}
	ref := func(i int) *pipelinesv1.CrossNamespaceClusterReference {
		return &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: fmt.Sprintf("team-%d", i%20), Name: fmt.Sprintf("cluster-%03d", i)}
	}
	for i := range clusters {
		f.Connections = append(f.Connections, capstanv1.ClusterConnection{
			ObjectMeta: metav1.ObjectMeta{Namespace: ref(i).Namespace, Name: "cluster." + ref(i).Name},
			Spec:       capstanv1.ClusterConnectionSpec{ClusterRef: *ref(i)},
			Status:     capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionReady, Reason: "Connected", KubernetesVersion: "v1.36.3", LastTransitionTime: &metav1.Time{Time: now}},
		})
		f.Observed[view.ClusterOf(ref(i), "")] = view.Observed{State: capstanv1.ConnectionReady, Reason: "Connected", LastContact: now}
	}
	for i := range pipelines {
		p := pipelinesv1.Pipeline{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", i%20), Name: fmt.Sprintf("app-%03d", i), UID: types.UID(fmt.Sprint(i))},
			Spec:       pipelinesv1.PipelineSpec{AppRef: pipelinesv1.LocalAppReference{Kind: "HelmRelease", Name: fmt.Sprintf("app-%03d", i)}},
			Status:     pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{}},
		}
		for e, env := range []string{"dev", "staging", "prod"} {
			p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env, Targets: []pipelinesv1.Target{
				{Namespace: "apps", ClusterRef: ref((3*i + e) % clusters)}, {Namespace: "apps", ClusterRef: ref((7*i + e) % clusters)},
			}})
			p.Status.Environments[env] = &pipelinesv1.EnvironmentStatus{Targets: []pipelinesv1.TargetStatus{{Ready: true, Revision: fmt.Sprintf("1.%d.0", i)}, {Ready: true, Revision: fmt.Sprintf("1.%d.0", i)}}}
		}
		f.Pipelines = append(f.Pipelines, p)
	}
	return f
}

// pageBudget is the maximum compressed size of a page of such a fleet.
const pageBudget = 300_000

// A page of 500 clusters, or of 200 Pipelines, is small enough to be sent completely.
func TestLargePagesAreSmall(t *testing.T) {
	g := NewWithT(t)
	f := large()
	for _, path := range []string{"/", "/pipelines"} {
		topic := largeTopic(t, largeRenderer(t), path)
		g.Expect(topic.refresh(f)).To(Succeed())
		shot, there, err := topic.shot()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(there).To(BeTrue())
		size := len(compressed([]byte(shot.main)))
		t.Logf("%s: %d bytes, %d compressed", path, len(shot.main), size)
		g.Expect(size).To(BeNumerically("<", pageBudget))
	}
}

func largeRenderer(t testing.TB) *renderer {
	t.Helper()
	_, addresses, err := loadAssets()
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRenderer(addresses, newMetrics().blocksRendered)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func largeTopic(t testing.TB, r *renderer, path string) *topic {
	t.Helper()
	a, ok := (&Options{}).parseAddress(&url.URL{Path: path})
	if !ok {
		t.Fatal(path)
	}
	return newTopic(a, view.Everything(), r)
}

// The first request of a page, after a time without viewers, renders all entries, the layout, and compresses.
func BenchmarkFirstLook(b *testing.B) {
	for _, path := range []string{"/", "/pipelines"} {
		b.Run(path, func(b *testing.B) {
			f := large()
			for b.Loop() {
				topic := largeTopic(b, largeRenderer(b), path)
				if err := topic.refresh(f); err != nil {
					b.Fatal(err)
				}
				shot, _, err := topic.shot()
				if err != nil {
					b.Fatal(err)
				}
				compressed([]byte(shot.main))
			}
		})
	}
}

// An update after one Pipeline changed; the cost does not depend on the number of viewers.
func BenchmarkPulse(b *testing.B) {
	for _, path := range []string{"/", "/pipelines"} {
		b.Run(path, func(b *testing.B) {
			topic, f := largeTopic(b, largeRenderer(b), path), large()
			n := 0
			for b.Loop() {
				n++
				next := *f
				next.Now = f.Now.Add(time.Duration(n) * time.Nanosecond)
				next.Pipelines[0].Status.Environments["dev"] = &pipelinesv1.EnvironmentStatus{Targets: []pipelinesv1.TargetStatus{{Ready: true, Revision: fmt.Sprint(n)}, {}}}
				if err := topic.refresh(&next); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
