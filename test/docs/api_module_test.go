package docs

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// apiModules are all that an importer of the module api gets: apimachinery, and what
// that requires.
var apiModules = []string{
	"github.com/fxamacker/cbor/v2",
	"github.com/go-logr/logr",
	"github.com/json-iterator/go",
	"github.com/modern-go/concurrent",
	"github.com/modern-go/reflect2",
	"github.com/x448/float16",
	"go.yaml.in/yaml/v2",
	"golang.org/x/net",
	"golang.org/x/text",
	"gopkg.in/inf.v0",
	"k8s.io/apimachinery",
	"k8s.io/klog/v2",
	"k8s.io/kube-openapi",
	"k8s.io/utils",
	"sigs.k8s.io/json",
	"sigs.k8s.io/randfill",
	"sigs.k8s.io/structured-merge-diff/v6",
}

// The module api requires apimachinery alone: no AWS, NATS or Git library, and nothing
// of the hub's.
func TestTheAPIModuleIsSmall(t *testing.T) {
	g := NewWithT(t)
	command := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	command.Dir = filepath.Join(root, "api")
	raw, err := command.Output()
	g.Expect(err).NotTo(HaveOccurred())
	var module struct {
		Module  struct{ Path string }
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []any
	}
	g.Expect(json.Unmarshal(raw, &module)).To(Succeed())
	g.Expect(module.Module.Path).To(Equal("github.com/capstan-hub/capstan/api"))
	g.Expect(module.Replace).To(BeEmpty(), "a replacement does not hold for importers")
	for _, required := range module.Require {
		g.Expect(apiModules).To(ContainElement(required.Path), "importers of the API types would get %s", required.Path)
		g.Expect(required.Indirect).To(Equal(required.Path != "k8s.io/apimachinery"), required.Path)
	}

	// go.mod says so itself only while it is complete.
	command = exec.CommandContext(t.Context(), "go", "list", "-mod=readonly", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
	command.Dir = filepath.Join(root, "api")
	out, err := command.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
}
