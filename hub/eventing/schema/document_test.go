package schema_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var update = flag.Bool("update", false, "write the tables of docs/eventing.md anew")

const (
	document = "../../../docs/eventing.md"
	begin    = "<!-- generated: config -->\n"
	end      = "\n<!-- end of generated: config -->"
)

// The tables are generated from the schemas.
func TestDocumentIsCurrent(t *testing.T) {
	g := NewWithT(t)
	want := types(t, "").Document()
	written, err := os.ReadFile(document)
	g.Expect(err).NotTo(HaveOccurred())
	before, rest, found := strings.Cut(string(written), begin)
	g.Expect(found).To(BeTrue())
	tables, after, found := strings.Cut("\n"+rest, end)
	g.Expect(found).To(BeTrue())
	if *update {
		g.Expect(os.WriteFile(document, []byte(before+begin+strings.TrimPrefix(want, "\n")+end+after), 0o644)).To(Succeed())
		return
	}
	g.Expect(tables).To(Equal(want), "run `make generate`")
}
