package install

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/controlplane"
)

// notTyped are prefixes of commands of the quick start that cannot run here, and the reasons.
var notTyped = map[string]string{
	"make demo":                                "the story, TestTheStoryWithTheChartsRights",
	"make image":                               "hack/release builds and reads the image",
	"make push":                                "hack/release pushes to a registry of its own",
	"kind load image-archive":                  "there is no container engine",
	"kubectl -n capstan-system rollout":        "no kubelet starts pods",
	"kubectl -n capstan-system port-forward":   "no kubelet starts pods",
	"kubectl create token NAME":                "it stands for a name",
	"kubectl get promotions.capstan.dev -A -w": "it does not end",
}

var (
	// block matches commands in a document: lines that are indented by four.
	block = regexp.MustCompile(`(?m)(?:^    .*\n)+`)
	// fenced matches a file in a document.
	fenced = regexp.MustCompile("(?ms)^```.*?^```$")
	// remark matches a comment after a command.
	remark = regexp.MustCompile(`\s{2,}#.*$`)
	// firstPipeline matches the Pipeline of the README.
	firstPipeline = regexp.MustCompile("(?s)## Your first Pipeline\n\n```yaml\n(.*?)```")
)

// A shell runs the commands of the quick start, word for word, against an empty API server.
func TestTheQuickStart(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	plane, err := controlplane.Start(controlplane.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = plane.Stop() })
	clone, typed := newShell(t, plane)
	// The clone has the Pipeline of the README.
	readme, err := os.ReadFile(path("README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	pipeline := firstPipeline.FindSubmatch(readme)
	g.Expect(pipeline).NotTo(BeNil())
	g.Expect(os.WriteFile(filepath.Join(clone, "pipeline.yaml"), pipeline[1], 0o600)).To(Succeed())
	// The quick start needs the namespaces of the clusters and Pipelines.
	typed("kubectl create namespace fleet; kubectl create namespace apps")

	outputs := map[string]string{}
	left := maps.Clone(notTyped)
	for _, command := range commands(t, "docs/quick-start.md") {
		if begins, not := beginsWith(command, notTyped); not {
			delete(left, begins)
			continue
		}
		if strings.HasPrefix(command, "kubectl apply -k config/default") {
			typed("helm uninstall capstan --namespace capstan-system") // It is the other way to install.
		}
		outputs[command] = typed(command)
	}
	g.Expect(left).To(BeEmpty(), "the quick start does not have these commands any more")
	g.Expect(outputs).To(HaveKeyWithValue(HavePrefix("helm install capstan config/chart "), ContainSubstring("The hub is installed in capstan-system.")))
	g.Expect(outputs).To(HaveKeyWithValue("kubectl apply -k config/default", ContainSubstring("deployment.apps/capstan-hub created")))
	g.Expect(outputs).To(HaveKeyWithValue("kubectl apply -n apps -f pipeline.yaml", ContainSubstring("pipeline.pipelines.weave.works/shop created")))
	g.Expect(outputs).To(HaveKeyWithValue("capstan status", ContainSubstring("apps/shop")))
	g.Expect(outputs).To(HaveKeyWithValue("capstan explain pipeline apps/shop", ContainSubstring("shop")))
}

// newShell returns a clone of the repository, with what make build makes, and a function that
// runs a command in it as an administrator of a control plane types it.
func newShell(t *testing.T, plane *controlplane.ControlPlane) (clone string, typed func(command string) string) {
	t.Helper()
	g := NewWithT(t)
	kubeconfig, err := plane.Kubeconfig("")
	g.Expect(err).NotTo(HaveOccurred())
	clone = t.TempDir()
	g.Expect(os.Symlink(path("config"), filepath.Join(clone, "config"))).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(clone, "kubeconfig"), kubeconfig, 0o600)).To(Succeed())
	g.Expect(build()).To(Succeed())
	env := append(os.Environ(), "HOME="+clone, "KUBECONFIG="+filepath.Join(clone, "kubeconfig"),
		"PATH="+strings.Join([]string{programs, path("bin"), path("bin", "envtest"), os.Getenv("PATH")}, string(os.PathListSeparator)))
	return clone, func(command string) string {
		shell := exec.CommandContext(t.Context(), "bash", "-ec", command)
		shell.Dir, shell.Env = clone, env
		out, err := shell.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), "%s\n%s", command, out)
		return string(out)
	}
}

// build builds the programs that users type, once for all tests.
var build = sync.OnceValue(func() error {
	command := exec.Command("go", "build", "-o", programs, "./cmd/capstan")
	command.Dir, command.Env = controlplane.Root(), append(os.Environ(), "CGO_ENABLED=0") // As make build does.
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

// beginsWith returns the key that a command begins with.
func beginsWith(command string, keys map[string]string) (string, bool) {
	for begins := range keys {
		if strings.HasPrefix(command, begins) {
			return begins, true
		}
	}
	return "", false
}

// commands returns the commands of a document without remarks.
func commands(t *testing.T, document string) []string {
	t.Helper()
	g := NewWithT(t)
	raw, err := os.ReadFile(path(filepath.FromSlash(document)))
	g.Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, lines := range block.FindAllString(fenced.ReplaceAllString(string(raw), ""), -1) {
		for line := range strings.SplitSeq(strings.ReplaceAll(lines, "\\\n", ""), "\n") {
			if line = strings.TrimSpace(remark.ReplaceAllString(line, "")); line != "" {
				all = append(all, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	g.Expect(all).NotTo(BeEmpty())
	return all
}
