package docs

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

//go:generate go test . -run Current -update

var update = flag.Bool("update", false, "write the generated documents anew")

const root = "../.."

// current holds a generated document against what is written.
func current(t *testing.T, path, text string) {
	t.Helper()
	g := NewWithT(t)
	at := filepath.Join(root, path)
	if *update {
		g.Expect(os.WriteFile(at, []byte(text), 0o644)).To(Succeed())
	}
	written, err := os.ReadFile(at)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(written)).To(Equal(text), "%s: run `make generate`", path)
}
