package annotator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/internal/capa"
)

var (
	// ErrInvalidReference is returned if infrastructureRef is missing, or names an object that defines no
	// nodes.
	ErrInvalidReference = errors.New("infrastructureRef is not valid")
	// ErrNoInstanceType is returned if a template names no instance type.
	ErrNoInstanceType = errors.New("no instance type")
	// errForeign: the nodes belong to another provider.
	errForeign = errors.New("another infrastructure provider's")
)

// sentence is an error with a text that the requirements fix, and a class for errors.Is.
type sentence struct {
	words string
	class error
}

func (s *sentence) Error() string { return s.words }
func (s *sentence) Unwrap() error { return s.class }

// ResolveAWSMachineTemplate fetches the AWSMachineTemplate referenced by the
// MachineDeployment (or a MachineSet). Errors: ErrInvalidReference, and the reader's.
func ResolveAWSMachineTemplate(ctx context.Context, c client.Reader, machineDeployment *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ref, _ := infrastructure(machineDeployment)
	if ref.Name == "" {
		return nil, &sentence{"infrastructureRef.name is empty", ErrInvalidReference}
	}
	if ref.Kind != capa.AWSMachineTemplate.Kind {
		return nil, &sentence{"expected AWSMachineTemplate, got " + ref.Kind, ErrInvalidReference}
	}
	if ref.Group != capa.GroupInfrastructure {
		return nil, &sentence{fmt.Sprintf("expected AWSMachineTemplate of %s, got group %q", capa.GroupInfrastructure, ref.Group), ErrInvalidReference}
	}
	template, err := capa.Get(ctx, c, capa.AWSMachineTemplate.WithVersion(capa.Version), ref.ObjectKey)
	if err != nil {
		return nil, fmt.Errorf("failed to fetch AWSMachineTemplate %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return template, nil
}

// ExtractInstanceType gets the instance type from an AWSMachineTemplate. Error:
// ErrNoInstanceType.
func ExtractInstanceType(template *unstructured.Unstructured) (string, error) {
	if t := capa.Text(template, "spec", "template", "spec", "instanceType"); t != "" {
		return t, nil
	}
	return "", &sentence{"instanceType is empty in AWSMachineTemplate", ErrNoInstanceType}
}

func infrastructure(u *unstructured.Unstructured) (capa.Reference, bool) {
	return capa.ReferenceAt(u, "spec", "template", "spec", "infrastructureRef")
}

// machines describes the nodes of a group.
type machines struct {
	// types are the instance types: one, or all that a pool may mix; sorted.
	types []string
	// diskGiB is the size of the volume that pods use; 0 when not set.
	diskGiB int64
	// limited says that EKS limits the pods of the nodes: those of a managed node group without an
	// image of its own.
	limited bool
	// os is the value of the label kubernetes.io/os.
	os string
}

const (
	linux   = "linux"
	windows = "windows"
	// defaultPoolType is the type that EKS uses for a managed node group that names none
	// (CAPA leaves the choice to EKS).
	defaultPoolType = "t3.medium"
)

// resolveMachines reads the instance types of a node group from the object that it references. Errors: errForeign,
// ErrInvalidReference, ErrNoInstanceType, and the reader's.
func resolveMachines(ctx context.Context, c client.Reader, group *unstructured.Unstructured) (machines, error) {
	ref, found := infrastructure(group)
	if found && foreign(ref.GroupKind) {
		return machines{}, errForeign
	}
	if group.GetKind() != capa.MachinePool.Kind {
		template, err := ResolveAWSMachineTemplate(ctx, c, group)
		if err != nil {
			return machines{}, err
		}
		t, err := ExtractInstanceType(template)
		if err != nil {
			return machines{}, err
		}
		m := machines{types: []string{t}, diskGiB: volume(template, false, "spec", "template", "spec"), os: linux}
		if strings.EqualFold(capa.Text(template, "status", "nodeInfo", "operatingSystem"), windows) {
			m.os = windows
		}
		return m, nil
	}
	return resolvePool(ctx, c, ref)
}

// foreign reports whether a reference is to another provider than Cluster API Provider AWS. A
// reference without kind is invalid, not foreign.
func foreign(kind schema.GroupKind) bool {
	ours := kind.Group == capa.GroupInfrastructure && (strings.HasPrefix(kind.Kind, "AWS") || strings.HasPrefix(kind.Kind, "ROSA"))
	return kind.Kind != "" && kind.Group != "" && !ours
}

func resolvePool(ctx context.Context, c client.Reader, ref capa.Reference) (machines, error) {
	switch {
	case ref.Name == "":
		return machines{}, &sentence{"infrastructureRef.name is empty", ErrInvalidReference}
	case ref.GroupKind != capa.AWSMachinePool && ref.GroupKind != capa.AWSManagedMachinePool && ref.GroupKind != capa.ROSAMachinePool:
		return machines{}, &sentence{"expected AWSMachinePool, AWSManagedMachinePool or ROSAMachinePool, got " + ref.Kind, ErrInvalidReference}
	}
	pool, err := capa.Get(ctx, c, ref.GroupKind.WithVersion(capa.Version), ref.ObjectKey)
	if err != nil {
		return machines{}, fmt.Errorf("failed to fetch %s %s/%s: %w", ref.Kind, ref.Namespace, ref.Name, err)
	}
	amiType := capa.Text(pool, "spec", "amiType")
	m := machines{os: linux, diskGiB: volume(pool, strings.HasPrefix(amiType, "BOTTLEROCKET_"), "spec", "awsLaunchTemplate")}
	launched := capa.Text(pool, "spec", "awsLaunchTemplate", "instanceType")
	switch ref.GroupKind {
	case capa.AWSMachinePool:
		if m.types = overrides(pool); m.types == nil && launched != "" {
			m.types = []string{launched}
		}
	case capa.AWSManagedMachinePool:
		m.types = []string{first(capa.Text(pool, "spec", "instanceType"), launched, defaultPoolType)}
		m.diskGiB = max(m.diskGiB, number(pool, "spec", "diskSize")) // EKS applies it to the volume that pods use.
		m.limited = amiType != "CUSTOM" && capa.Text(pool, "spec", "awsLaunchTemplate", "ami", "id") == ""
		if strings.HasPrefix(amiType, "WINDOWS_") {
			m.os = windows
		}
	case capa.ROSAMachinePool:
		if t := capa.Text(pool, "spec", "instanceType"); t != "" {
			m.types = []string{t}
		}
		m.diskGiB = number(pool, "spec", "volumeSize")
	}
	if len(m.types) == 0 {
		return machines{}, &sentence{"instanceType is empty in " + ref.Kind, ErrNoInstanceType}
	}
	return m, nil
}

// dataDevice is the second volume of Bottlerocket. Containers and their images are on it; the root
// volume only holds the operating system.
const dataDevice = "/dev/xvdb"

// volume returns the size of the volume that pods use, of a machine's specification at a path: the
// root volume or, on Bottlerocket, the data volume. It is 0 when it is not set. The names by which
// an image is looked up say whether it is Bottlerocket; nothing does if its id is given.
func volume(u *unstructured.Unstructured, bottlerocket bool, at ...string) int64 {
	for _, field := range []string{"imageLookupBaseOS", "imageLookupFormat"} {
		bottlerocket = bottlerocket || strings.Contains(strings.ToLower(capa.Text(u, slices.Concat(at, []string{field})...)), "bottlerocket")
	}
	if !bottlerocket {
		return number(u, slices.Concat(at, []string{"rootVolume", "size"})...)
	}
	others, _, _ := unstructured.NestedSlice(u.Object, slices.Concat(at, []string{"nonRootVolumes"})...)
	for _, other := range others {
		if v, ok := other.(map[string]any); ok && v["deviceName"] == dataDevice {
			return number(&unstructured.Unstructured{Object: v}, "size")
		}
	}
	return 0
}

// overrides returns the types of a mixed instances policy, which replace that of the launch
// template.
func overrides(pool *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(pool.Object, "spec", "mixedInstancesPolicy", "overrides")
	var types []string
	for _, o := range list {
		if m, ok := o.(map[string]any); ok {
			if t := capa.Text(&unstructured.Unstructured{Object: m}, "instanceType"); t != "" {
				types = append(types, t)
			}
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// first returns the first text that is not empty.
func first(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

// number returns a field as a whole number; 0 when it is missing or has another type.
func number(u *unstructured.Unstructured, path ...string) int64 {
	switch n, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...); n := n.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}
