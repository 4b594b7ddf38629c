package schema_test

import (
	"flag"
	"os"
	"testing"

	. "github.com/onsi/gomega"
)

var update = flag.Bool("update", false, "write docs/eventing-config.md anew")

const document = "../../../docs/eventing-config.md"

// The document is printed from the schemas, so that it cannot tell of others.
func TestDocumentIsCurrent(t *testing.T) {
	g := NewWithT(t)
	want := types(t, "").Document()
	if *update {
		g.Expect(os.WriteFile(document, []byte(want), 0o644)).To(Succeed())
	}
	written, err := os.ReadFile(document)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(written)).To(Equal(want), "run `make generate`")
}
