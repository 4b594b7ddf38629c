package capa

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stored objects are a reader. A missing object is NotFound unless fails says otherwise.
type stored struct {
	client.Reader
	objects map[Reference]*unstructured.Unstructured
	fails   map[schema.GroupKind]error
}

func (s stored) Get(_ context.Context, at client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := into.GetObjectKind().GroupVersionKind().GroupKind()
	if err := s.fails[kind]; err != nil {
		return err
	}
	o := s.objects[Reference{kind, at}]
	if o == nil {
		return apierrors.NewNotFound(Resource(kind), at.Name)
	}
	o.DeepCopyInto(into.(*unstructured.Unstructured))
	return nil
}

func (s stored) put(kind schema.GroupKind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if spec != nil {
		u.Object["spec"] = spec
	}
	u.SetGroupVersionKind(kind.WithVersion(Version))
	u.SetNamespace(namespace)
	u.SetName(name)
	s.objects[Reference{kind, client.ObjectKeyFromObject(u)}] = u
	return u
}

func ref(kind schema.GroupKind, name string) map[string]any {
	return map[string]any{"apiGroup": kind.Group, "kind": kind.Kind, "name": name}
}

func TestPlaceOf(t *testing.T) {
	g := NewWithT(t)
	s := stored{objects: map[Reference]*unstructured.Unstructured{}, fails: map[schema.GroupKind]error{}}
	cluster := s.put(Cluster, "a", "c", map[string]any{"infrastructureRef": ref(AWSCluster, "i"), "controlPlaneRef": ref(AWSManagedControlPlane, "p")})
	place := func(own string) Place {
		t.Helper()
		p, err := PlaceOf(t.Context(), s, cluster, own)
		g.Expect(err).NotTo(HaveOccurred())
		return p
	}
	g.Expect(place("")).To(Equal(Place{}), "nothing exists")
	cluster.SetAnnotations(map[string]string{RegionAnnotation: "r4"})
	g.Expect(place("")).To(Equal(Place{Region: "r4"}))
	g.Expect(place("r3")).To(Equal(Place{Region: "r3"}), "the object's own annotation comes first")

	infra := s.put(AWSCluster, "a", "i", map[string]any{})
	g.Expect(place("r3")).To(Equal(Place{Region: "r3", IdentityOf: infra}), "an AWSCluster without region still has an identity")
	plane := s.put(AWSManagedControlPlane, "a", "p", map[string]any{"region": "r2"})
	g.Expect(place("r3")).To(Equal(Place{Region: "r2", NamedBy: plane, IdentityOf: plane}))
	infra = s.put(AWSCluster, "a", "i", map[string]any{"region": "r1"})
	g.Expect(place("r3")).To(Equal(Place{Region: "r1", NamedBy: infra, IdentityOf: infra}))

	p, err := PlaceOf(t.Context(), s, nil, "r3")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p).To(Equal(Place{Region: "r3"}), "without a Cluster")
}

// A reference of the v1beta1 contract into another namespace does not count: it would give a
// cluster the identity of another tenant.
func TestPlaceOfAnotherNamespace(t *testing.T) {
	g := NewWithT(t)
	s := stored{objects: map[Reference]*unstructured.Unstructured{}}
	in := map[string]any{"apiVersion": GroupInfrastructure + "/v1beta2", "kind": "AWSCluster", "name": "i", "namespace": "b"}
	cluster := s.put(Cluster, "a", "c", map[string]any{"infrastructureRef": in})
	s.put(AWSCluster, "b", "i", map[string]any{"region": "r"})
	p, err := PlaceOf(t.Context(), s, cluster, "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p).To(Equal(Place{}))
	in["namespace"] = "a"
	infra := s.put(AWSCluster, "a", "i", map[string]any{"region": "r"})
	p, err = PlaceOf(t.Context(), s, cluster, "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p).To(Equal(Place{Region: "r", NamedBy: infra, IdentityOf: infra}))
}

type notInstalled bool

func (notInstalled) Error() string        { return "not synced" }
func (n notInstalled) NotInstalled() bool { return bool(n) }

// A temporary error does not count as absence.
func TestPlaceOfErrors(t *testing.T) {
	g := NewWithT(t)
	for err, absent := range map[error]bool{
		&meta.NoKindMatchError{}: true, notInstalled(true): true, notInstalled(false): false,
		apierrors.NewNotFound(schema.GroupResource{}, "x"): true, apierrors.NewInternalError(errors.New("x")): false,
	} {
		s := stored{objects: map[Reference]*unstructured.Unstructured{}, fails: map[schema.GroupKind]error{AWSCluster: err}}
		cluster := s.put(Cluster, "a", "c", map[string]any{"infrastructureRef": ref(AWSCluster, "i")})
		p, got := PlaceOf(t.Context(), s, cluster, "r")
		if absent {
			g.Expect(got).NotTo(HaveOccurred())
			g.Expect(p).To(Equal(Place{Region: "r"}))
		} else {
			g.Expect(got).To(MatchError(err))
		}
	}
}

// allowedNamespaces as CAPA's isClusterPermittedToUsePrincipal has it, but for selectors.
func TestRoleOf(t *testing.T) {
	for name, c := range map[string]struct {
		allowed any
		may     bool
	}{
		"missing":                 {nil, false},
		"no object":               {"all", false},
		"empty object":            {map[string]any{}, true},
		"null parts":              {map[string]any{"list": nil, "selector": nil}, true},
		"empty selector":          {map[string]any{"selector": map[string]any{}}, true},
		"list with it":            {map[string]any{"list": []any{"b", "a"}}, true},
		"list without it":         {map[string]any{"list": []any{"b"}}, false},
		"empty list":              {map[string]any{"list": []any{}}, false},
		"list that is no list":    {map[string]any{"list": "a"}, false},
		"list of no strings":      {map[string]any{"list": []any{int64(1)}}, false},
		"selector":                {map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"x": "y"}}}, false},
		"selector of nothing":     {map[string]any{"selector": map[string]any{"matchLabels": map[string]any{}}}, false},
		"selector and list":       {map[string]any{"list": []any{"a"}, "selector": map[string]any{"matchLabels": map[string]any{"x": "y"}}}, true},
		"selector that is no map": {map[string]any{"selector": "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := stored{objects: map[Reference]*unstructured.Unstructured{}}
			of := s.put(AWSCluster, "a", "i", map[string]any{"identityRef": map[string]any{"kind": "AWSClusterRoleIdentity", "name": "r"}})
			role, refused, err := RoleOf(t.Context(), s, of)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(role).To(Equal(Role{}))
			g.Expect(refused).To(HavePrefix("AWSClusterRoleIdentity r does not exist: "))
			spec := map[string]any{"roleARN": "arn", "externalID": "id", "sessionName": "name"}
			if c.allowed != nil {
				spec["allowedNamespaces"] = c.allowed
			}
			s.put(AWSClusterRoleIdentity, "", "r", spec)
			role, refused, err = RoleOf(t.Context(), s, of)
			g.Expect(err).NotTo(HaveOccurred())
			if c.may {
				g.Expect(role).To(Equal(Role{ARN: "arn", ExternalID: "id", SessionName: "name"}))
				g.Expect(refused).To(BeEmpty())
			} else {
				g.Expect(role).To(Equal(Role{}))
				g.Expect(refused).To(HavePrefix("AWSClusterRoleIdentity r does not allow namespace a: add it to spec.allowedNamespaces.list"))
			}
		})
	}
}

func TestRoleOfNoIdentity(t *testing.T) {
	g := NewWithT(t)
	s := stored{objects: map[Reference]*unstructured.Unstructured{}, fails: map[schema.GroupKind]error{AWSClusterRoleIdentity: errors.New("unreadable")}}
	none := func(of *unstructured.Unstructured) {
		t.Helper()
		role, refused, err := RoleOf(t.Context(), s, of)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(role).To(Equal(Role{}))
		g.Expect(refused).To(BeEmpty())
	}
	none(nil)
	none(s.put(AWSCluster, "a", "i", nil))
	none(s.put(AWSCluster, "a", "s", map[string]any{"identityRef": map[string]any{"kind": "AWSClusterStaticIdentity", "name": "r"}}))
	role := s.put(AWSCluster, "a", "r", map[string]any{"identityRef": map[string]any{"kind": "AWSClusterRoleIdentity", "name": "r"}})
	_, _, err := RoleOf(t.Context(), s, role)
	g.Expect(err).To(MatchError("unreadable"))
}

// Each identity of a chain must exist and allow the namespace.
func TestRoleOfAChain(t *testing.T) {
	all, elsewhere := map[string]any{}, map[string]any{"list": []any{"b"}}
	source := func(kind schema.GroupKind, name string) map[string]any {
		return map[string]any{"kind": kind.Kind, "name": name}
	}
	type identity struct {
		kind    schema.GroupKind
		name    string
		allowed map[string]any
		source  map[string]any
	}
	for name, c := range map[string]struct {
		identities []identity
		arns       []string
		refused    string
	}{
		"of roles": {[]identity{
			{AWSClusterRoleIdentity, "r", all, source(AWSClusterRoleIdentity, "s")},
			{AWSClusterRoleIdentity, "s", all, source(AWSClusterRoleIdentity, "t")},
			{AWSClusterRoleIdentity, "t", all, nil},
		}, []string{"arn-r", "arn-s", "arn-t"}, ""},
		"from CAPA's own identity": {[]identity{
			{AWSClusterRoleIdentity, "r", all, source(AWSClusterControllerIdentity, "default")},
			{AWSClusterControllerIdentity, "default", all, nil},
		}, []string{"arn-r"}, ""},
		"from CAPA's own identity, which does not allow it": {[]identity{
			{AWSClusterRoleIdentity, "r", all, source(AWSClusterControllerIdentity, "default")},
			{AWSClusterControllerIdentity, "default", elsewhere, nil},
		}, nil, "AWSClusterControllerIdentity default does not allow namespace a: "},
		"from keys": {[]identity{
			{AWSClusterRoleIdentity, "r", all, source(AWSClusterRoleIdentity, "s")},
			{AWSClusterRoleIdentity, "s", all, source(AWSClusterStaticIdentity, "k")},
			{AWSClusterStaticIdentity, "k", all, nil},
		}, []string{"arn-r", "arn-s"}, ""},
		"whose source does not allow it": {[]identity{
			{AWSClusterRoleIdentity, "r", all, source(AWSClusterRoleIdentity, "s")},
			{AWSClusterRoleIdentity, "s", elsewhere, nil},
		}, nil, "AWSClusterRoleIdentity s does not allow namespace a: "},
		"whose source does not exist": {[]identity{
			{AWSClusterRoleIdentity, "r", all, source(AWSClusterStaticIdentity, "k")},
		}, nil, "AWSClusterStaticIdentity k does not exist: "},
		"that returns to itself": {[]identity{
			{AWSClusterRoleIdentity, "r", all, source(AWSClusterRoleIdentity, "s")},
			{AWSClusterRoleIdentity, "s", all, source(AWSClusterRoleIdentity, "r")},
		}, nil, "AWSClusterRoleIdentity r has a chain of spec.sourceIdentityRef that is longer than 8, or returns to itself: "},
		"of a kind that is none": {[]identity{
			{AWSClusterRoleIdentity, "r", all, map[string]any{"kind": "Secret", "name": "k"}},
		}, nil, `spec.sourceIdentityRef of AWSClusterRoleIdentity r has the unknown kind "Secret": `},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := stored{objects: map[Reference]*unstructured.Unstructured{}}
			of := s.put(AWSCluster, "a", "i", map[string]any{"identityRef": map[string]any{"kind": "AWSClusterRoleIdentity", "name": "r"}})
			for _, i := range c.identities {
				spec := map[string]any{"roleARN": "arn-" + i.name, "allowedNamespaces": i.allowed}
				if i.source != nil {
					spec["sourceIdentityRef"] = i.source
				}
				s.put(i.kind, "", i.name, spec)
			}
			role, refused, err := RoleOf(t.Context(), s, of)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(refused).To(HavePrefix(c.refused))
			var arns []string
			for r := &role; r != nil && r.ARN != ""; r = r.Source {
				arns = append(arns, r.ARN)
			}
			g.Expect(arns).To(Equal(c.arns))
			if c.refused == "" {
				g.Expect(refused).To(BeEmpty())
			}
		})
	}
}

func TestPaused(t *testing.T) {
	g := NewWithT(t)
	s := stored{objects: map[Reference]*unstructured.Unstructured{}}
	cluster := s.put(Cluster, "a", "c", map[string]any{})
	g.Expect(ClusterPaused(nil)).To(BeFalse())
	g.Expect(ClusterPaused(cluster)).To(BeFalse())
	cluster.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: "false"})
	g.Expect(ClusterPaused(cluster)).To(BeTrue(), "the annotation counts with any value")
	g.Expect(ClusterPaused(s.put(Cluster, "a", "c", map[string]any{"paused": true}))).To(BeTrue())
}

func TestNames(t *testing.T) {
	g := NewWithT(t)
	g.Expect(GroupInfrastructure).To(Equal(clusterv1.GroupVersionInfrastructure.Group))
	g.Expect(GroupControlPlane).To(Equal(clusterv1.GroupVersionControlPlane.Group))
	for kind, resource := range map[schema.GroupKind]string{
		MachineDeployment: "machinedeployments", MachineSet: "machinesets", MachinePool: "machinepools", Machine: "machines",
		AWSMachine: "awsmachines", AWSMachinePool: "awsmachinepools",
	} {
		g.Expect(Resource(kind)).To(Equal(schema.GroupResource{Group: kind.Group, Resource: resource}))
	}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		owner := metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/" + version, Kind: "Machine"}
		g.Expect(IsOwner(owner, Machine)).To(BeTrue())
		g.Expect(IsOwner(owner, MachineSet)).To(BeFalse())
	}
	g.Expect(IsOwner(metav1.OwnerReference{APIVersion: "machine.openshift.io/v1beta1", Kind: "Machine"}, Machine)).To(BeFalse())
}
