package config_test

import (
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A CRD of Pipelines that has no gates is refused; every other change of it is not.
func TestACRDWithoutGatesIsRefused(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	admin, err := client.New(world.plane.Config(), client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	crd := &apiextensionsv1.CustomResourceDefinition{}
	g.Expect(admin.Get(t.Context(), client.ObjectKey{Name: "pipelines.pipelines.weave.works"}, crd)).To(Succeed())
	pruned := crd.DeepCopy()
	status := pruned.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	delete(status.Properties, "schema")
	pruned.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"] = status
	g.Eventually(func() bool {
		err = admin.Update(t.Context(), pruned.DeepCopy(), client.DryRunAll)
		return apierrors.IsInvalid(err)
	}).WithTimeout(patience).Should(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring("this CRD has no gates, or no selectors of clusters (status.schema and status.schemaFleets)")))
	crd.Labels = map[string]string{"team": "platform"}
	g.Expect(admin.Update(t.Context(), crd, client.DryRunAll)).To(Succeed())
}
