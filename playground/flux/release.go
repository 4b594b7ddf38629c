package flux

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// fieldOwner is the field manager of helm-controller.
	fieldOwner = client.FieldOwner("helm-controller")
	// interval between reconciliations of a declared HelmRelease. It is long, because
	// nothing here waits for it.
	interval = time.Hour
)

// ErrVersion is returned for a chart version that only a real chart repository can
// resolve: a range, or an empty one.
var ErrVersion = errors.New("the chart version must be an exact one")

// Release is a HelmRelease in one cluster.
type Release struct {
	// Client of the cluster that the HelmRelease is in.
	Client client.Client
	// Key of the HelmRelease. Its name is also that of the chart.
	Key types.NamespacedName
	// OCIDigest of the chart, as sha256:<hex>, makes it a chart from an OCIRepository.
	// Its version is then not in the HelmRelease, and is reported with the first twelve
	// characters of the digest (6.0.1+1e80e5c66d2f).
	OCIDigest string
	// Pause between the steps of the controller, so that people can watch. Zero means
	// none.
	Pause time.Duration
}

// Declare writes the HelmRelease (with its Namespace) at the chart version, as a team's
// commit does. It does not change the status.
func (r Release) Declare(ctx context.Context, version string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.Key.Namespace}}
	if err := r.Client.Create(ctx, namespace); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("creating namespace %s: %w", r.Key.Namespace, err)
	}
	spec := helmv2.HelmReleaseSpec{Interval: metav1.Duration{Duration: interval}}
	if r.OCIDigest != "" {
		spec.ChartRef = &helmv2.CrossNamespaceSourceReference{Kind: "OCIRepository", Name: r.Key.Name}
	} else {
		spec.Chart = &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{
			Chart:     r.Key.Name,
			Version:   version,
			SourceRef: helmv2.CrossNamespaceObjectReference{Kind: "HelmRepository", Name: "charts"},
		}}
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		obj, err := r.get(ctx)
		if apierrors.IsNotFound(err) {
			return r.Client.Create(ctx, &helmv2.HelmRelease{
				ObjectMeta: metav1.ObjectMeta{Namespace: r.Key.Namespace, Name: r.Key.Name}, Spec: spec,
			})
		}
		if err != nil {
			return err
		}
		obj.Spec.Chart, obj.Spec.ChartRef = spec.Chart, spec.ChartRef
		return r.Client.Update(ctx, obj)
	})
	if err != nil {
		return fmt.Errorf("declaring HelmRelease %s at %s: %w", r.Key, version, err)
	}
	return nil
}

// Deploy declares the version and simulates the controller until it is deployed.
func (r Release) Deploy(ctx context.Context, version string) error {
	if err := r.Declare(ctx, version); err != nil {
		return err
	}
	return r.reconcile(ctx, version, nil)
}

// Fail declares the version and simulates the controller until Helm has failed with the
// cause and no retry is left (by default there is none).
func (r Release) Fail(ctx context.Context, version string, cause error) error {
	if err := r.Declare(ctx, version); err != nil {
		return err
	}
	return r.reconcile(ctx, version, cause)
}

// reconcile simulates one reconciliation: each step changes the object and is patched
// before the next.
func (r Release) reconcile(ctx context.Context, version string, cause error) error {
	if err := exact(version); err != nil {
		return fmt.Errorf("HelmRelease %s: %w: %q", r.Key, err, version)
	}
	obj, err := r.get(ctx)
	if err != nil {
		return fmt.Errorf("reading HelmRelease %s: %w", r.Key, err)
	}
	// The status is of the generation that was read, although a patch returns a newer one
	// if the spec was changed meanwhile.
	generation := obj.Generation
	action := attempt{version: version, digest: r.OCIDigest, cause: cause, began: time.Now()}
	for i, step := range action.steps(obj) {
		if i > 0 && !pause(ctx, r.Pause) {
			return ctx.Err()
		}
		before := obj.DeepCopy()
		step(obj)
		if err := r.Client.Status().Patch(ctx, obj, client.MergeFrom(before), fieldOwner); err != nil {
			return fmt.Errorf("writing the status of HelmRelease %s: %w", r.Key, err)
		}
		obj.Generation = generation
	}
	return nil
}

func (r Release) get(ctx context.Context) (*helmv2.HelmRelease, error) {
	obj := &helmv2.HelmRelease{}
	return obj, r.Client.Get(ctx, r.Key, obj)
}

// exact refuses Helm's ranges and wildcards.
func exact(version string) error {
	if version == "" || strings.ContainsAny(version, "*^~<>=|, ") {
		return ErrVersion
	}
	return nil
}

// pause waits. It returns false if the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
