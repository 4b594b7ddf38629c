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
	for _, dir := range []string{"api", "clusters", "watchers", "strategy", "hub"} {
		g.Expect(filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return collect(path, reasons)
		})).To(Succeed())
	}
	g.Expect(reasons).To(And(HaveKey("ProbesFailed"), HaveKey("GetClusterError"), HaveKey("ApprovalTooLate"), HaveKey("NoMarker"), HaveKey("Unreachable")))

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

	// The names of alerts are entries, too.
	raw, err = os.ReadFile(filepath.Join(root, "config/monitoring/prometheus_rule.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, alert := range regexp.MustCompile(`(?m)alert: (\w+)$`).FindAllStringSubmatch(string(raw), -1) {
		g.Expect(explained).To(HaveKey(alert[1]), "give the alert a row in docs/troubleshooting.md")
		reasons[alert[1]] = "an alert"
	}
	for _, word := range slices.Sorted(maps.Keys(explained)) {
		g.Expect(reasons).To(HaveKey(word), "docs/troubleshooting.md explains what nothing says")
	}
}

var (
	// isReason are the names of constants that are reasons, and of the types of which
	// every constant is one.
	isReason = regexp.MustCompile(`^[rR]eason[A-Z]|Reason$|^Word[A-Z]`)
	ofReason = regexp.MustCompile(`[rR]eason$|^ConnectionState$|^PromotionPhase$`)
	// field is what a reason is assigned to.
	field = regexp.MustCompile(`^[rR]eason$`)
)

// eventReason is which argument of Eventf is the reason.
const eventReason = 3

// collect the reasons that a file has, with where they stand.
func collect(path string, into map[string]string) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	add := func(e ast.Expr) {
		literal, ok := e.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return
		}
		if word, err := strconv.Unquote(literal.Value); err == nil && word != "" {
			into[word] = set.Position(literal.Pos()).String()
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			if n.Tok != token.CONST {
				return true
			}
			for _, spec := range n.Specs {
				value, ok := spec.(*ast.ValueSpec)
				if !ok {
					continue
				}
				typed, _ := value.Type.(*ast.Ident)
				for i, name := range value.Names {
					if i < len(value.Values) && (isReason.MatchString(name.Name) || typed != nil && ofReason.MatchString(typed.Name)) {
						add(value.Values[i])
					}
				}
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if i < len(n.Rhs) && field.MatchString(lastName(to)) {
					add(n.Rhs[i])
				}
			}
		case *ast.KeyValueExpr:
			if field.MatchString(lastName(n.Key)) {
				add(n.Value)
			}
		case *ast.CallExpr:
			if lastName(n.Fun) == "Eventf" && len(n.Args) > eventReason {
				add(n.Args[eventReason])
			}
		}
		return true
	})
	return nil
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
