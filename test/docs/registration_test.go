package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// registers says how a piece of Go registers metrics; empty when it does not.
func registers(n ast.Node) string {
	found := ""
	ast.Inspect(n, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := s.Sel.Name
		if of, ok := s.X.(*ast.Ident); ok {
			name = of.Name + "." + name
		}
		switch {
		case s.Sel.Name == "MustRegister", name == "prometheus.Register", strings.HasSuffix(name, "Registry.Register"), strings.HasPrefix(name, "promauto."):
			found = name
		case s.Sel.Name == "Register": // metrics.Registry.Register
			if of, ok := s.X.(*ast.SelectorExpr); ok && of.Sel.Name == "Registry" {
				found = "Registry.Register"
			}
		}
		return true
	})
	return found
}

// onImport says how a file registers metrics when its package is imported: in init(), or
// in the value of a package's variable.
func onImport(file *ast.File) string {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" && d.Body != nil {
				if how := registers(d.Body); how != "" {
					return how
				}
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				if how := registers(d); how != "" {
					return how
				}
			}
		}
	}
	return ""
}

// No package registers metrics when it is imported: Options.Registerer decides where they
// go.
func TestNothingIsRegisteredOnImport(t *testing.T) {
	g := NewWithT(t)
	files := 0
	g.Expect(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == "bin" || name == "testdata" || name == ".git" || name == ".playground" {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files++
		g.Expect(onImport(file)).To(BeEmpty(), "%s registers metrics on import: make them in the constructor and register them with Options.Registerer (internal/collectors)", path)
		return nil
	})).To(Succeed())
	g.Expect(files).To(BeNumerically(">", 300))
}

func TestRegistrationOnImportIsFound(t *testing.T) {
	for source, want := range map[string]bool{
		`func init() { metrics.Registry.MustRegister(calls) }`:                          true,
		`func init() { _ = metrics.Registry.Register(calls) }`:                          true,
		`func init() { if err := prometheus.Register(calls); err != nil { panic(1) } }`: true,
		`var calls = promauto.NewCounter(o)`:                                            true,
		`var calls = prometheus.NewCounter(o)`:                                          false,
		`func New(r Registerer) { r.MustRegister(calls) }`:                              false,
		`func init() { scheme.Register(kinds) }`:                                        false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+source, parser.SkipObjectResolution)
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(onImport(file) != "").To(Equal(want), source)
	}
}
