package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// entry is a row of a table of docs/troubleshooting.md: words in its first cell.
var (
	entry  = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|")
	quoted = regexp.MustCompile("`([^`]+)`")
)

// Whatever stands as a reason in a condition, a status, an Event, a refusal or a
// metric is explained in docs/troubleshooting.md, and what is explained there exists.
func TestEveryReasonIsExplained(t *testing.T) {
	g := NewWithT(t)
	reasons := map[string]string{}
	for _, dir := range []string{"api", "clusters", "index", "watchers", "strategy", "hub"} {
		g.Expect(filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() || entry.Name() == "testdata" {
				return err
			}
			return collect(path, reasons)
		})).To(Succeed())
	}
	g.Expect(reasons).To(And(HaveKey("ProbesFailed"), HaveKey("GetClusterError"), HaveKey("ApprovalTooLate"), HaveKey("NoMarker"), HaveKey("Unreachable"),
		HaveKey("EventsDropped"), HaveKey("Backend not ready"), HaveKey("full"), HaveKey("no-stream"), HaveKey("no-instances")))

	raw, err := os.ReadFile(filepath.Join(root, "docs/troubleshooting.md"))
	g.Expect(err).NotTo(HaveOccurred())
	explained := map[string]bool{}
	for _, row := range entry.FindAllStringSubmatch(string(raw), -1) {
		for _, word := range quoted.FindAllStringSubmatch(row[1], -1) {
			explained[word[1]] = true
		}
	}
	for reason, where := range reasons {
		g.Expect(explained).To(HaveKey(reason), "%s: give it a row in docs/troubleshooting.md", where)
	}

	for _, word := range slices.Sorted(maps.Keys(explained)) {
		g.Expect(reasons).To(HaveKey(word), "docs/troubleshooting.md explains what nothing says")
	}
}

var (
	// isReason are the names of constants that are reasons, and of the types of which
	// every constant is one.
	isReason = regexp.MustCompile(`^[rR]eason[A-Z]|Reason$|^Word[A-Z]|^Code[A-Z]`)
	// isState are the names of constants that are values of the labels of instances. Other
	// packages call the keys of labels so.
	isState  = regexp.MustCompile(`^Label[A-Z]`)
	ofReason = regexp.MustCompile(`[rR]eason$|^ConnectionState$|^PromotionPhase$|^RequestPhase$`)
	// field is what a reason is assigned to, and the parameter that takes one.
	field = regexp.MustCompile(`^[rR]eason$`)
)

// eventReason is which argument of Eventf is the reason, and errorCode that of
// sink.Errorf: with it an event is dropped.
const eventReason, errorCode = 3, 1

// collect the reasons that a package has, with where they stand.
func collect(dir string, into map[string]string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	c := collector{set: set, states: filepath.Base(dir) == "message", constants: map[string]ast.Expr{}, takes: map[string]int{"Eventf": eventReason}, into: into}
	for _, file := range files {
		ast.Inspect(file, c.learn)
	}
	for _, file := range files {
		ast.Inspect(file, c.read)
	}
	return nil
}

// collector of the reasons of a package.
type collector struct {
	set *token.FileSet
	// states: the package names the states of instances.
	states bool
	// constants of the package by name.
	constants map[string]ast.Expr
	// takes is which argument of a function is a reason.
	takes map[string]int
	into  map[string]string
}

// learn what the package names.
func (c *collector) learn(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		if n.Tok == token.CONST {
			eachConstant(n, func(name, _ string, value ast.Expr) { c.constants[name] = value })
		}
	case *ast.FuncDecl:
		at := 0
		for _, parameter := range n.Type.Params.List {
			for _, name := range parameter.Names {
				if field.MatchString(name.Name) {
					c.takes[n.Name.Name] = at
				}
				at++
			}
		}
	}
	return true
}

// read the reasons that a node has.
func (c *collector) read(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		if n.Tok == token.CONST {
			eachConstant(n, func(name, of string, value ast.Expr) {
				if isReason.MatchString(name) || ofReason.MatchString(of) || (c.states && isState.MatchString(name)) {
					c.add(value)
				}
			})
		}
	case *ast.AssignStmt:
		for i, to := range n.Lhs {
			if i < len(n.Rhs) && field.MatchString(lastName(to)) {
				c.add(n.Rhs[i])
			}
		}
	case *ast.KeyValueExpr:
		if field.MatchString(lastName(n.Key)) {
			c.add(n.Value)
		}
	case *ast.CallExpr:
		at, ok := c.takes[lastName(n.Fun)]
		if of, selected := n.Fun.(*ast.SelectorExpr); selected && lastName(of.X) == "sink" && of.Sel.Name == "Errorf" {
			at, ok = errorCode, true
		}
		if ok && at < len(n.Args) {
			c.add(n.Args[at])
		}
	}
	return true
}

// add a reason: a text, or a constant of the package that is one, also as a string.
func (c *collector) add(e ast.Expr) {
	if conversion, ok := e.(*ast.CallExpr); ok && lastName(conversion.Fun) == "string" && len(conversion.Args) == 1 {
		e = conversion.Args[0]
	}
	if name, ok := e.(*ast.Ident); ok {
		e = c.constants[name.Name]
	}
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return
	}
	if word, err := strconv.Unquote(literal.Value); err == nil && word != "" {
		c.into[word] = c.set.Position(literal.Pos()).String()
	}
}

// eachConstant of a declaration, with the name of its type.
func eachConstant(of *ast.GenDecl, use func(name, of string, value ast.Expr)) {
	for _, spec := range of.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		kind := ""
		if typed, ok := value.Type.(*ast.Ident); ok {
			kind = typed.Name
		}
		for i, name := range value.Names {
			if i < len(value.Values) {
				use(name.Name, kind, value.Values[i])
			}
		}
	}
}

// lastName of an expression such as p.Status.Reason.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
