package install

import (
	"bytes"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/cmd/capstan/cli"
)

// The Deployments start the command hub of the program, with flags that it has: --help stops the
// program after all other flags were parsed.
func TestDeploymentsStartTheHub(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	byChart, err := chart(t)
	g.Expect(err).NotTo(HaveOccurred())
	dryRun, err := chart(t, "--set", "dryRun=true", "--set", "dashboard.tlsSecret=tls", "--set", "dashboard.sessionKeySecret=key")
	g.Expect(err).NotTo(HaveOccurred())
	for what, text := range map[string]string{"chart": byChart, "chart, dry run": dryRun, "kustomization": kustomization(t, "default")} {
		c := container(t, objects(t, text)["Deployment "+hubNamespace+"/capstan-hub"])
		g.Expect(c).NotTo(HaveKey("command"), "the image's entry point is the program: %s", what)
		all, ok := c["args"].([]any)
		g.Expect(ok).To(BeTrue(), what)
		g.Expect(all[0]).To(Equal("hub"), what)
		args := make([]string, 0, len(all)+1)
		for _, arg := range all {
			text, isText := arg.(string)
			g.Expect(isText).To(BeTrue(), what)
			args = append(args, text)
		}
		var out, errOut bytes.Buffer
		g.Expect(cli.Main(t.Context(), append(args, "--help"), &out, &errOut)).To(BeZero(), "%s: %s", what, errOut.String())
		g.Expect(out.String()).To(ContainSubstring("capstan hub [flags]"))
	}
}
