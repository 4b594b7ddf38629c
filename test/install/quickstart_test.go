package install

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/controlplane"
)

// notTyped are the commands of the quick start that cannot be typed here, by how they
// begin, and why.
var notTyped = map[string]string{
	"make demo":                                "the story, TestTheStoryWithTheChartsRights",
	"docker buildx":                            "there is no Docker",
	"kubectl -n capstan-system rollout":        "no kubelet starts pods",
	"kubectl -n capstan-system port-forward":   "no kubelet starts pods",
	"kubectl create token NAME":                "it stands for a name",
	"kubectl get promotions.capstan.dev -A -w": "it does not end",
}

var (
	// block of commands in a document: lines that are indented by four.
	block = regexp.MustCompile(`(?m)(?:^    .*\n)+`)
	// remark behind a command.
	remark = regexp.MustCompile(`\s{2,}#.*$`)
	// firstPipeline is that of the README.
	firstPipeline = regexp.MustCompile("(?s)## Your first Pipeline\n\n```yaml\n(.*?)```")
)

// A shell runs the commands of the quick start, word for word, against an empty API server.
func TestTheQuickStart(t *testing.T) {
	g := NewWithT(t)
	plane, err := controlplane.Start(controlplane.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = plane.Stop() })
	kubeconfig, err := plane.Kubeconfig("")
	g.Expect(err).NotTo(HaveOccurred())

	// The clone, with what make build makes and the Pipeline of the README.
	clone, programs := t.TempDir(), t.TempDir()
	g.Expect(os.Symlink(path("config"), filepath.Join(clone, "config"))).To(Succeed())
	readme, err := os.ReadFile(path("README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	pipeline := firstPipeline.FindSubmatch(readme)
	g.Expect(pipeline).NotTo(BeNil())
	g.Expect(os.WriteFile(filepath.Join(clone, "pipeline.yaml"), pipeline[1], 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(clone, "kubeconfig"), kubeconfig, 0o600)).To(Succeed())
	build := exec.CommandContext(t.Context(), "go", "build", "-o", programs, "./cmd/capstan")
	build.Dir = controlplane.Root()
	out, err := build.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	env := append(os.Environ(), "HOME="+clone, "KUBECONFIG="+filepath.Join(clone, "kubeconfig"),
		"PATH="+strings.Join([]string{programs, path("bin"), path("bin", "envtest"), os.Getenv("PATH")}, string(os.PathListSeparator)))
	typed := func(command string) string {
		shell := exec.CommandContext(t.Context(), "bash", "-ec", command)
		shell.Dir, shell.Env = clone, env
		out, err := shell.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), "%s\n%s", command, out)
		return string(out)
	}
	// The namespaces of the clusters and Pipelines are there.
	typed("kubectl create namespace fleet; kubectl create namespace apps")

	said := map[string]string{}
	left := maps.Clone(notTyped)
	for _, command := range commands(t, "docs/quick-start.md") {
		if begins, not := beginsWith(command, notTyped); not {
			delete(left, begins)
			continue
		}
		if strings.HasPrefix(command, "kubectl apply -k config/default") {
			typed("helm uninstall capstan --namespace capstan-system") // It is the other way to install.
		}
		said[command] = typed(command)
	}
	g.Expect(left).To(BeEmpty(), "the quick start does not say these any more")
	g.Expect(said).To(HaveKeyWithValue(HavePrefix("helm install capstan config/chart "), ContainSubstring("The hub is installed in capstan-system.")))
	g.Expect(said).To(HaveKeyWithValue("kubectl apply -k config/default", ContainSubstring("deployment.apps/capstan-hub created")))
	g.Expect(said).To(HaveKeyWithValue("kubectl apply -n apps -f pipeline.yaml", ContainSubstring("pipeline.pipelines.weave.works/shop created")))
	g.Expect(said).To(HaveKeyWithValue("capstan status", ContainSubstring("apps/shop")))
	g.Expect(said).To(HaveKeyWithValue("capstan explain pipeline apps/shop", ContainSubstring("shop")))
}

// beginsWith returns the key that a command begins with.
func beginsWith(command string, keys map[string]string) (string, bool) {
	for begins := range keys {
		if strings.HasPrefix(command, begins) {
			return begins, true
		}
	}
	return "", false
}

// commands of a document, one each, without remarks.
func commands(t *testing.T, document string) []string {
	t.Helper()
	g := NewWithT(t)
	raw, err := os.ReadFile(path(filepath.FromSlash(document)))
	g.Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, lines := range block.FindAllString(string(raw), -1) {
		for line := range strings.SplitSeq(strings.ReplaceAll(lines, "\\\n", ""), "\n") {
			if line = strings.TrimSpace(remark.ReplaceAllString(line, "")); line != "" {
				all = append(all, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	g.Expect(all).NotTo(BeEmpty())
	return all
}
