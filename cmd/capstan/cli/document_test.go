package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go test . -run TestFlagsAreCurrent -update

var update = flag.Bool("update", false, "regenerate docs/flags.md")

const flagsDocument = "../../../docs/flags.md"

// docs/flags.md is generated from the commands, so that it is always current.
func TestFlagsAreCurrent(t *testing.T) {
	g := NewWithT(t)
	var b strings.Builder
	b.WriteString("# Commands and flags\n\nGenerated from cmd/capstan/cli by `make generate`. The programs also read the environment variables `KUBECONFIG`\nand `RUNTIME_NAMESPACE` (of the lease, outside a pod), and those of the AWS SDK.\n")
	for _, program := range []*cobra.Command{newRoot(), newCapaAnnotator()} {
		describe(&b, program)
	}
	if *update {
		g.Expect(os.WriteFile(flagsDocument, []byte(b.String()), 0o644)).To(Succeed())
	}
	written, err := os.ReadFile(flagsDocument)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(written)).To(Equal(b.String()), "run `make generate`")
}

func describe(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), c.Short)
	if c.Example != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", c.Example)
	}
	head := "\n| flag | default | what it is |\n|---|---|---|\n"
	c.Flags().VisitAll(func(f *pflag.Flag) {
		b.WriteString(head)
		head = ""
		value := "–"
		if f.DefValue != "" && f.DefValue != "[]" {
			value = "`" + f.DefValue + "`"
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, value, strings.ReplaceAll(f.Usage, "|", `\|`))
	})
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			describe(b, sub)
		}
	}
}
