package clusters

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

func TestClusterNames(t *testing.T) {
	g := NewWithT(t)
	for name, ref := range map[multicluster.ClusterName]Ref{
		"":                      {},
		"Cluster/team/prod":     {Kind: "Cluster", Namespace: "team", Name: "prod"},
		"Secret/team/prod":      {Kind: "Secret", Namespace: "team", Name: "prod"},
		"GitopsCluster/a/b.c-d": {Kind: "GitopsCluster", Namespace: "a", Name: "b.c-d"},
	} {
		g.Expect(ref.ClusterName()).To(Equal(name))
		g.Expect(ParseClusterName(name)).To(Equal(ref))
	}
	for _, name := range []multicluster.ClusterName{"prod", "team/prod", "Pod/a/b", "Cluster/a/b/c", "Cluster//b", "Cluster/a/"} {
		_, err := ParseClusterName(name)
		g.Expect(err).To(MatchError(ErrInvalid), string(name))
	}
	g.Expect(RefOf(nil, "x")).To(Equal(Ref{}))
	g.Expect(RefOf(&pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "n"}, "x")).To(Equal(Ref{"Cluster", "x", "n"}))
	g.Expect(RefOf(&pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "n", Namespace: "y"}, "x")).To(Equal(Ref{"Cluster", "y", "n"}))
}

func TestResolve(t *testing.T) {
	capi := func(name string) Ref { return Ref{"Cluster", "ns", name} }
	gitops := func(name string) Ref { return Ref{"GitopsCluster", "ns", name} }
	labelled := func(name string) Ref { return Ref{"Secret", "ns", name} }
	o := newObjects(scoping{secrets: []string{"ns", "unread"}})
	o.setKind("Secret/ns", kindState{synced: true})
	o.put(labelled("prod"), clusterObject{UID: "3"})
	o.setKind("Cluster", kindState{synced: true})
	o.setKind("GitopsCluster", kindState{synced: true})
	o.put(capi("prod"), clusterObject{UID: "1"})
	o.put(capi("going"), clusterObject{UID: "2", Deleting: true})
	o.put(gitops("prod"), clusterObject{CAPIRef: "prod"})
	o.put(gitops("secret"), clusterObject{SecretRef: "kc"})
	o.put(gitops("both"), clusterObject{SecretRef: "kc", CAPIRef: "prod"})
	o.put(gitops("none"), clusterObject{})
	o.put(gitops("unready"), clusterObject{SecretRef: "kc", Unready: true, Problem: "secret is missing"})
	o.put(gitops("silent"), clusterObject{SecretRef: "kc", Unready: true})
	o.put(gitops("dangling"), clusterObject{CAPIRef: "nowhere"})
	for _, tc := range []struct {
		ref  Ref
		want Ref
		err  error
		says string
	}{
		{ref: Ref{}, want: Ref{}},
		{ref: capi("prod"), want: capi("prod")},
		{ref: gitops("prod"), want: capi("prod")},
		{ref: gitops("secret"), want: gitops("secret")},
		{ref: gitops("both"), err: ErrInvalid, says: "GitopsCluster ns/both must have exactly one of"},
		{ref: gitops("none"), err: ErrInvalid, says: "spec.secretRef and spec.capiClusterRef"},
		{ref: gitops("unready"), err: ErrNotReady, says: "secret is missing"},
		{ref: gitops("silent"), err: ErrNotReady, says: "has the condition Ready=False, without a message"},
		{ref: gitops("dangling"), err: ErrNotFound, says: "Cluster ns/nowhere, which GitopsCluster ns/dangling points to"},
		{ref: gitops("nowhere"), err: ErrNotFound, says: "GitopsCluster ns/nowhere does not exist"},
		{ref: capi("going"), err: ErrNotFound, says: "is being deleted"},
		{ref: Ref{"Pod", "ns", "x"}, err: ErrInvalid, says: "use Cluster, ClusterProfile, GitopsCluster or Secret"},
		{ref: labelled("prod"), want: labelled("prod")},
		{ref: labelled("plain"), err: ErrNotFound, says: `Secret ns/plain does not exist, or does not have the label capstan.dev/cluster: "true": create it, label it`},
		{ref: Ref{"Secret", "unread", "prod"}, err: ErrNotSynced, says: "has not read the Secrets of namespace unread yet"},
		{ref: Ref{"Secret", "other", "prod"}, err: ErrNotFound, says: "Secret other/prod cannot name a cluster: the administrator has not added namespace other to --cluster-secret-namespaces"},
	} {
		t.Run(tc.ref.String(), func(t *testing.T) {
			g := NewWithT(t)
			got, err := o.resolve(tc.ref)
			if tc.err == nil {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got).To(Equal(tc.want))
				return
			}
			g.Expect(err).To(MatchError(tc.err))
			g.Expect(err.Error()).To(ContainSubstring(tc.says))
		})
	}
}

// The list has what resolve does not resolve, too: it says what exists.
func TestList(t *testing.T) {
	g := NewWithT(t)
	capi, gitops := func(name string) Ref { return Ref{"Cluster", "ns", name} }, func(name string) Ref { return Ref{"GitopsCluster", "ns", name} }
	o := newObjects(scoping{})
	o.put(capi("going"), clusterObject{Created: time.Unix(1, 0), Deleting: true, Labels: map[string]string{"a": "b"}})
	o.put(gitops("dangling"), clusterObject{CAPIRef: "nowhere", Unready: true})
	o.put(gitops("both"), clusterObject{SecretRef: "kc", CAPIRef: "prod"})
	every := func(string) bool { return true }
	g.Expect(o.list(every)).To(ConsistOf(
		Object{Ref: capi("going"), Created: time.Unix(1, 0), Deleting: true, Labels: map[string]string{"a": "b"}},
		Object{Ref: gitops("dangling"), Of: capi("nowhere")},
		Object{Ref: gitops("both")}))
	g.Expect(o.problems(every)).To(BeEmpty())
	o.setProblem("Cluster", "forbidden")
	o.setProblem("GitopsCluster", "also forbidden")
	one := func(kind string) bool { return kind == "Cluster" }
	g.Expect(o.list(one)).To(HaveLen(1))
	g.Expect(o.problems(one)).To(ConsistOf("the hub has not read the Clusters of the management cluster yet: forbidden"))
	o.setKind("Cluster", kindState{synced: true, problem: "a watch that began again"})
	g.Expect(o.problems(every)).To(ConsistOf("the hub has not read the GitopsClusters of the management cluster yet: also forbidden"), "what was read is known")
}

// TestConcerned: which references a change affects.
func TestConcerned(t *testing.T) {
	g := NewWithT(t)
	cluster, points, other := Ref{"Cluster", "ns", "prod"}, Ref{"GitopsCluster", "ns", "g"}, Ref{"GitopsCluster", "other", "g"}
	o := newObjects(scoping{})
	_, err := o.resolve(points)
	g.Expect(err).To(MatchError(ErrNotSynced))
	unresolved, changed := o.setKind("GitopsCluster", kindState{synced: true})
	g.Expect(changed).To(BeTrue())
	g.Expect(unresolved).To(ConsistOf(points), "references that could not be resolved before are returned")
	g.Expect(o.put(points, clusterObject{CAPIRef: "prod"})).To(ConsistOf(points))
	g.Expect(o.put(other, clusterObject{CAPIRef: "prod"})).To(ConsistOf(other))
	g.Expect(o.put(cluster, clusterObject{UID: "1"})).To(ConsistOf(cluster, points))
	g.Expect(o.put(cluster, clusterObject{UID: "1"})).To(BeEmpty(), "equal")
	g.Expect(o.put(cluster, clusterObject{UID: "1", Deleting: true})).To(ConsistOf(cluster, points))
	g.Expect(o.retain("Cluster", func(Ref) bool { return true })).To(BeEmpty())
	g.Expect(o.retain("Cluster", func(ref Ref) bool { g.Expect(ref).To(Equal(cluster)); return false })).To(ConsistOf(cluster, points), "objects that are not in a new list are removed")
	g.Expect(o.drop(cluster)).To(BeEmpty())
	o.put(points, clusterObject{CAPIRef: "test", Unready: true})
	g.Expect(o.put(cluster, clusterObject{UID: "2"})).To(ConsistOf(cluster), "the reference changed")
	g.Expect(o.put(Ref{"Cluster", "ns", "test"}, clusterObject{})).To(ConsistOf(Ref{"Cluster", "ns", "test"}, points))
	g.Expect(o.drop(points)).To(ConsistOf(points))
	g.Expect(o.drop(Ref{"Cluster", "ns", "test"})).To(ConsistOf(Ref{"Cluster", "ns", "test"}))
	g.Expect(o.drop(other)).To(ConsistOf(other))
	g.Expect(o.drop(cluster)).To(ConsistOf(cluster))
	g.Expect(o.lockedState.aliases).To(BeEmpty())
	o.setKind("Cluster", kindState{absent: true})
	_, err = o.resolve(cluster)
	g.Expect(err).To(MatchError(ErrNotFound))
	g.Expect(err.Error()).To(ContainSubstring("CustomResourceDefinition is not installed"))
}

// TestAskedTooEarly: a problem with one kind does not remove the unresolved references of
// another.
func TestAskedTooEarly(t *testing.T) {
	g := NewWithT(t)
	gitops := Ref{"GitopsCluster", "ns", "nowhere"}
	o := newObjects(scoping{})
	o.setKind("Cluster", kindState{synced: true})
	_, err := o.resolve(gitops)
	g.Expect(err).To(MatchError(ErrNotSynced))
	waiting, changed := o.setProblem("GitopsCluster", "connection refused")
	g.Expect(changed).To(BeTrue())
	g.Expect(waiting).To(ConsistOf(gitops), "it shows the problem")
	waiting, changed = o.setProblem("Cluster", "connection refused")
	g.Expect(changed).To(BeTrue())
	g.Expect(waiting).To(BeEmpty())
	unresolved, _ := o.setKind("GitopsCluster", kindState{synced: true})
	g.Expect(unresolved).To(ConsistOf(gitops))
}

func TestReduceObject(t *testing.T) {
	g := NewWithT(t)
	now := metav1.Now().Rfc3339Copy()
	full := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
		"metadata": map[string]any{"name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "7",
			"annotations": map[string]any{"big": strings.Repeat("x", 1000)}, "labels": map[string]any{"a": "b", SelfManagedLabel: "true"}},
		"spec":   map[string]any{"secretRef": map[string]any{"name": "kc"}, "other": "x"},
		"status": map[string]any{"conditions": []any{"rubbish", map[string]any{"type": "Other", "status": "False"}, map[string]any{"type": "Ready", "status": "False", "message": "why", "reason": "X"}}},
	}}
	full.SetCreationTimestamp(now)
	full.SetDeletionTimestamp(&now)
	once, err := reduceObject(full)
	g.Expect(err).NotTo(HaveOccurred())
	twice, err := reduceObject(once)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(twice).To(Equal(once), "idempotent")
	kind := schema.GroupVersionKind{Group: "gitops.weave.works", Version: "v1alpha1", Kind: "GitopsCluster"}
	g.Expect(objectOf(once.(*unstructured.Unstructured), kind)).To(Equal(clusterObject{
		APIVersion: "gitops.weave.works/v1alpha1", UID: "u", Created: now.UTC(), Deleting: true, SecretRef: "kc", Unready: true, Problem: "why",
		Labels: map[string]string{"a": "b", SelfManagedLabel: "true"}}))
	g.Expect(once.(*unstructured.Unstructured).GetAnnotations()).To(BeEmpty())

	cluster := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", CreationTimestamp: now, Labels: map[string]string{SelfManagedLabel: "true", "x": "y"}, ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
	reduced, err := reduceObject(cluster)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(reduced.(*metav1.PartialObjectMetadata).ManagedFields).To(BeEmpty())
	kind = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"}
	g.Expect(objectOf(reduced.(metav1.Object), kind)).To(Equal(clusterObject{APIVersion: "cluster.x-k8s.io/v1beta2", UID: "u", Created: now.UTC(), SelfManaged: true, Labels: map[string]string{SelfManagedLabel: "true", "x": "y"}}))
}

// Clusters are selected by labels. Before the objects of a kind were read nothing is selected, and who asked is told
// when they are; what is known is kept when they cannot be read any more.
func TestSelected(t *testing.T) {
	g := NewWithT(t)
	o := newObjects(scoping{})
	prod := labels.SelectorFromSet(labels.Set{"tier": "prod"})
	names := func(namespace string) []string {
		t.Helper()
		all, err := o.selected("Cluster", namespace, prod)
		g.Expect(err).NotTo(HaveOccurred())
		var names []string
		for _, ref := range all {
			names = append(names, ref.Namespace+"/"+ref.Name)
		}
		return names
	}
	_, err := o.selected("Cluster", "a", prod)
	g.Expect(err).To(MatchError(ErrNotSynced))
	unresolved, _ := o.setKind("GitopsCluster", kindState{absent: true})
	g.Expect(unresolved).To(BeEmpty(), "it waits for another kind")
	unresolved, _ = o.setKind("Cluster", kindState{synced: true})
	g.Expect(unresolved).To(ConsistOf(SelectionRef("Cluster", "a")))
	put := func(kind, namespace, name string, change ...func(*clusterObject)) []Ref {
		object := clusterObject{Labels: map[string]string{"tier": "prod"}}
		for _, c := range change {
			c(&object)
		}
		return o.put(Ref{kind, namespace, name}, object)
	}
	put("Cluster", "b", "two")
	put("Cluster", "a", "two")
	put("Cluster", "a", "one")
	put("GitopsCluster", "a", "other")
	put("Cluster", "a", "test", func(c *clusterObject) { c.Labels = map[string]string{"tier": "test"} })
	g.Expect(put("Cluster", "a", "one")).To(BeEmpty(), "nothing changed")
	g.Expect(names("a")).To(Equal([]string{"a/one", "a/two"}))
	g.Expect(names("*")).To(Equal([]string{"a/one", "a/two", "b/two"}))
	g.Expect(put("Cluster", "a", "one", func(c *clusterObject) { c.Labels = nil })).To(ConsistOf(Ref{"Cluster", "a", "one"}))
	put("Cluster", "a", "two", func(c *clusterObject) { c.Deleting = true })
	put("Cluster", "a", "test")
	o.setProblem("Cluster", "the list fails")
	g.Expect(names("a")).To(Equal([]string{"a/test"}))
}

func TestConnectionName(t *testing.T) {
	g := NewWithT(t)
	g.Expect(connectionName(Ref{"Cluster", "team", "prod-eu"})).To(Equal("cluster.prod-eu"))
	g.Expect(connectionName(Ref{"GitopsCluster", "team", "prod-eu"})).To(Equal("gitopscluster.prod-eu"))
	long := strings.Repeat("a", 250)
	first, second := connectionName(Ref{"Cluster", "t", long + "1"}), connectionName(Ref{"Cluster", "t", long + "2"})
	g.Expect(len(first)).To(BeNumerically("<=", maxObjectName))
	g.Expect(first).NotTo(Equal(second))
}

func TestMerged(t *testing.T) {
	g := NewWithT(t)
	earlier, later := time.Unix(1000, 0), time.Unix(2000, 0)
	status := func(state capstanv1.ConnectionState, at time.Time) capstanv1.ClusterConnectionStatus {
		return statusOf(Snapshot{State: state, Reason: "Some", Since: at}, nil, 0)
	}
	stands := status(capstanv1.ConnectionReady, earlier)
	g.Expect(merged(stands, status(capstanv1.ConnectionConnecting, later), true)).To(Equal(stands), "it shows the last state while the hub connects")
	g.Expect(merged(stands, status(capstanv1.ConnectionConnecting, later), false).State).To(Equal(capstanv1.ConnectionConnecting))
	g.Expect(merged(stands, status(capstanv1.ConnectionReady, later), false)).To(Equal(stands), "a restart writes nothing")
	stands.KubernetesVersion = "v1.37.2"
	g.Expect(merged(stands, status(capstanv1.ConnectionReady, later), false)).To(Equal(stands), "also before the version is read again")
	lost := merged(stands, status(capstanv1.ConnectionUnreachable, later), false)
	g.Expect(lost.LastTransitionTime.Time).To(BeTemporally("==", later))
	g.Expect(lost.Conditions[0].LastTransitionTime.Time).To(BeTemporally("==", later))
	rejected := status(capstanv1.ConnectionAuthFailed, earlier)
	g.Expect(merged(rejected, status(capstanv1.ConnectionConnecting, later), true).State).To(Equal(capstanv1.ConnectionConnecting))
}

func TestPlain(t *testing.T) {
	g := NewWithT(t)
	g.Expect(plain("v1.36.3+k3s1")).To(Equal("v1.36.3+k3s1"))
	g.Expect(plain("v1\n\x1b[31m" + strings.Repeat("é", 100))).To(Equal("v1[31m"))
	g.Expect(plain(strings.Repeat("v", 1000))).To(HaveLen(versionLength))
}
