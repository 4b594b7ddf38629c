package chart

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"
)

var update = flag.Bool("update", false, "write the generated files of config/chart anew")

const (
	manifests = "../../config"
	chart     = manifests + "/chart"
)

func TestChartIsCurrent(t *testing.T) {
	g := NewWithT(t)
	files, err := Files(os.DirFS(manifests))
	g.Expect(err).NotTo(HaveOccurred())
	for path, text := range files {
		at := filepath.Join(chart, path)
		if *update {
			g.Expect(os.MkdirAll(filepath.Dir(at), 0o755)).To(Succeed())
			g.Expect(os.WriteFile(at, []byte(text), 0o644)).To(Succeed())
		}
		written, err := os.ReadFile(at)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(written)).To(Equal(text), "%s: run `make generate`", at)
	}
}

// What the manifests have is in the chart, or a reason stands here why not.
func TestEveryManifestIsInTheChart(t *testing.T) {
	g := NewWithT(t)
	elsewhere := map[string]string{
		"manager/namespace.yaml":    "Helm makes the namespace (--create-namespace)",
		"rbac/service_account.yaml": "written by hand: it has annotations by a value",
	}
	used := map[string]bool{}
	for _, template := range templates {
		for _, source := range template.sources {
			used[source] = true
		}
	}
	for _, dir := range []string{"crd/bases", "rbac", "rbac/cluster-secrets", "rbac/pipeline-secrets", "rbac/backend-secrets", "webhook", "manager", "admission", "monitoring"} {
		found, err := filepath.Glob(filepath.Join(manifests, dir, "*.yaml"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found).NotTo(BeEmpty())
		for _, path := range found {
			source, err := filepath.Rel(manifests, path)
			g.Expect(err).NotTo(HaveOccurred())
			if filepath.Base(source) == "kustomization.yaml" || elsewhere[source] != "" {
				continue
			}
			g.Expect(used).To(HaveKey(source), "add it to the templates in hack/chart")
		}
	}
}

func TestWhatCannotBeReplacedIsAnError(t *testing.T) {
	g := NewWithT(t)
	one := template{path: "a.yaml", sources: []string{"a.yaml"}, edits: []edit{{"replicas: 2\n", "replicas: {{ .Values.replicas }}\n", 1}}}

	text, err := one.render(fstest.MapFS{"a.yaml": {Data: []byte("# why\nreplicas: 2\nsummary: \"{{ $value }}\"\nnamespace: capstan-system\n")}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(Equal(header + "replicas: {{ .Values.replicas }}\nsummary: \"{{ `{{ $value }}` }}\"\nnamespace: {{ .Release.Namespace }}\n"))

	_, err = one.render(fstest.MapFS{"a.yaml": {Data: []byte("replicas: 3\n")}})
	g.Expect(err).To(MatchError(ContainSubstring(`"replicas: 2\n" is there 0 times, not 1`)))

	_, err = one.render(fstest.MapFS{})
	g.Expect(err).To(MatchError(os.ErrNotExist))
}
