package decision

import (
	"flag"
	"os"
	"testing"

	. "github.com/onsi/gomega"
)

var update = flag.Bool("update", false, "write docs/promotion-life.md anew")

const document = "../../../docs/promotion-life.md"

// The document is printed from the tables, so that it cannot tell of others.
func TestDocumentIsCurrent(t *testing.T) {
	g := NewWithT(t)
	if *update {
		g.Expect(os.MkdirAll("../../../docs", 0o755)).To(Succeed())
		g.Expect(os.WriteFile(document, []byte(Document()), 0o644)).To(Succeed())
	}
	written, err := os.ReadFile(document)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(written)).To(Equal(Document()), "run `make generate`")
}
