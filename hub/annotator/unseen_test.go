package annotator

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/internal/memberwrite"
	"github.com/capstan-hub/capstan/watchers"
)

func deploymentAt(version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(capa.MachineDeployment.WithVersion(capa.CoreVersion))
	u.SetNamespace("fleet")
	u.SetName("workers")
	u.SetResourceVersion(version)
	return u
}

// A watch that breaks after a patch and restarts after its revert delivers one update that
// changes only the resourceVersion. It triggers one reconciliation.
func TestAPatchAndItsUndoingInOne(t *testing.T) {
	g := NewWithT(t)
	r := &Reconciler{}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer q.ShutDown()
	h := changed(capa.MachineDeployment, watchers.Enqueue, r.awaits)(clusters.LocalName, nil)
	who := mcreconcile.Request{
		ClusterName: clusters.LocalName,
		Request:     reconcile.Request{NamespacedName: client.ObjectKeyFromObject(deploymentAt("1"))},
	}
	update := func(from, to string) {
		h.Update(t.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: deploymentAt(from), ObjectNew: deploymentAt(to)}, q)
	}
	update("0", "1")
	g.Expect(q.Len()).To(BeZero(), "nothing was sent")
	r.unseen.writes(who, "1")
	update("1", "3")
	g.Expect(q.Len()).To(Equal(1))
	g.Expect(r.unseen.holds(who, "3")).To(BeFalse())
}

// The watch of a kind keeps what other parts read, too: the replicas that the dashboard
// shows wake nothing, the fields and annotations that are read here do.
func TestOnlyWhatIsReadWakes(t *testing.T) {
	h := changed(capa.MachineDeployment, watchers.Enqueue, nil)(clusters.LocalName, nil)
	for name, tc := range map[string]struct {
		path  []string
		wakes int
	}{
		"replicas":                       {[]string{"status", "readyReplicas"}, 0},
		"a label":                        {[]string{"metadata", "labels", "cluster.x-k8s.io/cluster-name"}, 0},
		"an annotation of somebody else": {[]string{"metadata", "annotations", "example.com/other"}, 0},
		"the name of the Cluster":        {[]string{"spec", "clusterName"}, 1},
		"paused":                         {[]string{"metadata", "annotations", clusterv1.PausedAnnotation}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
			defer q.ShutDown()
			after := deploymentAt("2")
			g.Expect(unstructured.SetNestedField(after.Object, "x", tc.path...)).To(Succeed())
			h.Update(t.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: deploymentAt("1"), ObjectNew: after}, q)
			g.Expect(q.Len()).To(Equal(tc.wakes))
		})
	}
}

// What an admission webhook takes away again was not written, though the answer is 200:
// the object keeps its resourceVersion.
func TestATakenPatchThatChangesNothing(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(metav1.AddMetaToScheme(scheme)).To(Succeed())
	there := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineDeployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "workers", ResourceVersion: "7"},
	}
	w := &writer{Writer: memberwrite.Writer{Local: fake.NewSimpleMetadataClient(scheme, there)}}
	patch := []byte(`{"metadata":{"resourceVersion":"7","annotations":{"a":"b"}}}`)
	g.Expect(w.patch(t.Context(), clusters.LocalName, deploymentAt("7"), patch)).To(MatchError(errUndone))
	g.Expect(w.patch(t.Context(), clusters.LocalName, deploymentAt("6"), patch)).To(Succeed())
}
