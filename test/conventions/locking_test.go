package conventions

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// root of the repository.
const root = "../.."

// skipped are folders without code of the repository.
var skipped = []string{".git", "bin", "node_modules", "testdata"}

// TestLocking: every package follows the section "Locking" of CONTRIBUTING.md.
func TestLocking(t *testing.T) {
	var c checker
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(skipped, entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		c.files++
		return c.check(path, nil)
	})
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.files).To(BeNumerically(">", 300), "the whole repository is read")
	g.Expect(c.found).To(BeEmpty(), "see CONTRIBUTING.md, Locking:\n%s", strings.Join(c.found, "\n"))
}

// TestLockingIsChecked: each break of the rules is found, and what follows them is not.
func TestLockingIsChecked(t *testing.T) {
	for _, tc := range []struct {
		name, source string
		want         []string
	}{
		{"lockedState", "type a struct {\n\tmu sync.Mutex\n\tlockedState state\n}", nil},
		{"an embedded lockedState", "type a struct {\n\tmu sync.RWMutex\n\tlockedState\n}", nil},
		{"a group", "type a struct {\n\t// mu guards open.\n\tmu sync.Mutex\n\topen bool\n}", nil},
		{"a mutex for an action", "type a struct {\n\t// turn serialises the calls.\n\tturn sync.Mutex\n}", nil},
		{"no word of what is guarded", "type a struct {\n\tmu sync.Mutex\n\topen bool\n}", []string{"x.go:3: mu of a"}},
		{"a group that is apart", "type a struct {\n\t// mu guards open.\n\tmu sync.Mutex\n\n\topen bool\n}", []string{"x.go:4: mu of a"}},
		{"an action without a word", "type a struct {\n\tturn sync.Mutex\n}", []string{"x.go:3: turn of a"}},
		{"an embedded mutex", "type a struct {\n\tsync.Mutex\n\topen bool\n}", []string{"x.go:3: a embeds a mutex"}},
		{"a prefix", "func (a *a) lockedOpen() {}", []string{"x.go:2: lockedOpen"}},
		{"a call under the lock", "func (a *a) do() {\n\ta.mu.Lock()\n\tdefer a.mu.Unlock()\n\ta.openLocked()\n}", nil},
		{"a call from another", "func (a *a) doLocked() { a.openLocked() }", nil},
		{"a call without the lock", "func (a *a) do() { a.openLocked() }", []string{"x.go:2: do calls openLocked"}},
		{"it locks", "func (a *a) openLocked() {\n\ta.mu.Lock()\n}", []string{"x.go:3: openLocked locks"}},
		{"it locks another's", "func (a *a) openLocked(b *a) {\n\tb.mu.Lock()\n}", nil},
		{"it locks later", "func (a *a) startLocked() {\n\tgo func() { a.mu.Lock() }()\n}", nil},
		{"a constructor", "func newA() *a {\n\ta := &a{}\n\ta.openLocked()\n\treturn a\n}", nil},
		{"a comment instead of the name", "// open it; a.mu is held.\nfunc (a *a) open() {}", []string{"x.go:3: open says"}},
		{"another such comment", "// open is called with the lock held.\nfunc (a *a) open() {}", []string{"x.go:3: open says"}},
		{"a comment of a callback", "// open calls do with no lock held.\nfunc (a *a) open() {}", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			var c checker
			g.Expect(c.check("x.go", "package x\n"+tc.source)).To(Succeed())
			g.Expect(c.found).To(HaveLen(len(tc.want)), "%v", c.found)
			for i, want := range tc.want {
				g.Expect(c.found[i]).To(HavePrefix(want))
			}
		})
	}
}

// checker collects what breaks the rules.
type checker struct {
	set   *token.FileSet
	files int
	found []string
}

var (
	// heldComment is a comment that says what a name with the suffix Locked says.
	heldComment = regexp.MustCompile(`\bmu is held|[Ll]ock is held|with (the )?(mu|mutex|lock) held`)
	// prefixed is the form that names do not have.
	prefixed = regexp.MustCompile(`^locked[A-Z]`)
	// constructor makes a value that no other goroutine has yet.
	constructor = regexp.MustCompile(`^[nN]ew([A-Z]|$)`)
)

func (c *checker) check(path string, source any) error {
	c.set = token.NewFileSet()
	file, err := parser.ParseFile(c.set, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if body, ok := spec.Type.(*ast.StructType); ok {
				c.structType(spec.Name.Name, body)
			}
		}
		return true
	})
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			c.function(f)
		}
	}
	return nil
}

func (c *checker) report(at token.Pos, format string, args ...any) {
	p := c.set.Position(at)
	path, _ := strings.CutPrefix(filepath.ToSlash(p.Filename), root+"/")
	c.found = append(c.found, fmt.Sprintf("%s:%d: %s", path, p.Line, fmt.Sprintf(format, args...)))
}

// structType checks the form of each mutex of a struct.
func (c *checker) structType(name string, body *ast.StructType) {
	for i, f := range body.Fields.List {
		if !isMutex(f.Type) {
			continue
		}
		if len(f.Names) != 1 {
			c.report(f.Pos(), "%s embeds a mutex: make it a field named mu", name)
			continue
		}
		mutex, doc := f.Names[0].Name, strings.TrimSpace(f.Doc.Text())
		if mutex != "mu" {
			if !strings.HasPrefix(doc, mutex+" ") {
				c.report(f.Pos(), "%s of %s has no comment that begins with %q: say which action it serialises, or name it mu", mutex, name, mutex)
			}
			continue
		}
		var next *ast.Field
		if i+1 < len(body.Fields.List) {
			next = body.Fields.List[i+1]
		}
		if next == nil || fieldName(next) != "lockedState" && (!strings.HasPrefix(doc, "mu guards ") || c.apart(f, next)) {
			c.report(f.Pos(), "mu of %s is neither followed by lockedState, nor by what its comment \"mu guards ...\" names", name)
		}
	}
}

// apart is whether an empty line is between two fields.
func (c *checker) apart(a, b *ast.Field) bool {
	begin := b.Pos()
	if b.Doc != nil {
		begin = b.Doc.Pos()
	}
	return c.set.Position(begin).Line > c.set.Position(a.End()).Line+1
}

// fieldName is that of a field or of an embedded type.
func fieldName(f *ast.Field) string {
	if len(f.Names) > 0 {
		return f.Names[0].Name
	}
	if id, ok := f.Type.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

func isMutex(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	p, ok := s.X.(*ast.Ident)
	return ok && p.Name == "sync" && (s.Sel.Name == "Mutex" || s.Sel.Name == "RWMutex")
}

// function checks a function and what it calls.
func (c *checker) function(f *ast.FuncDecl) {
	name := f.Name.Name
	locked := strings.HasSuffix(name, "Locked")
	if prefixed.MatchString(name) {
		c.report(f.Pos(), "%s has the prefix of guarded data: a function that needs the lock ends in Locked", name)
	}
	if !locked && heldComment.MatchString(f.Doc.Text()) {
		c.report(f.Pos(), "%s says in its comment that the lock is held: let its name end in Locked", name)
	}
	if locked {
		c.locksNothing(f)
		return
	}
	locks := false
	var calls []*ast.Ident
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		switch {
		case !ok:
			if id, ok := call.Fun.(*ast.Ident); ok && strings.HasSuffix(id.Name, "Locked") {
				calls = append(calls, id)
			}
		case s.Sel.Name == "Lock" || s.Sel.Name == "RLock":
			locks = true
		case strings.HasSuffix(s.Sel.Name, "Locked"):
			calls = append(calls, s.Sel)
		}
		return true
	})
	if locks || constructor.MatchString(name) {
		return
	}
	for _, called := range calls {
		c.report(called.Pos(), "%s calls %s, and neither locks nor ends in Locked", name, called.Name)
	}
}

// locksNothing checks that a function whose caller has locked does not lock. What it
// starts or returns as a function literal runs without the lock, and may.
func (c *checker) locksNothing(f *ast.FuncDecl) {
	ast.Inspect(f, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		if call, ok := n.(*ast.CallExpr); ok {
			s, ok := call.Fun.(*ast.SelectorExpr)
			if ok && (s.Sel.Name == "Lock" || s.Sel.Name == "RLock") && rootOf(s.X) == receiver(f) {
				c.report(s.Pos(), "%s locks: its caller has locked", f.Name.Name)
			}
		}
		return true
	})
}

// receiver is the name of a method's receiver; "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List[0].Names) == 0 {
		return ""
	}
	return f.Recv.List[0].Names[0].Name
}

// rootOf is the variable that an expression begins with: a of a.b.mu.
func rootOf(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.SelectorExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return " "
		}
	}
}
