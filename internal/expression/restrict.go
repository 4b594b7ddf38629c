package expression

import (
	"regexp"
	"regexp/syntax"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// matches is the function of regular expressions.
const matches = "matches"

// maxPattern is the largest number of instructions of a compiled regular expression.
const maxPattern = 500

// refused are functions of cel-go. dyn hides lists in lists, format makes texts whose size the cost
// does not contain, and methods of timestamps read files with time zones.
var refused = map[string]bool{"dyn": true, "format": true, "timestamp": true}

// problem is an error at a node.
type problem struct {
	node int64
	text string
}

// restrictParsed refuses what makes the time of a type check, or of a comparison, grow
// exponentially with the text: values inside of values. It runs before the type check.
func restrictParsed(a *ast.AST) *problem {
	var found *problem
	refuse := func(e ast.Expr, text string) {
		if found == nil {
			found = &problem{node: e.ID(), text: text}
		}
	}
	ast.PreOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.MapKind:
			refuse(e, "maps are not supported: compare with == and combine with && and ||")
		case ast.StructKind:
			refuse(e, "objects cannot be made here: compare the fields")
		case ast.ListKind:
			if slices.ContainsFunc(e.AsList().Elements(), func(one ast.Expr) bool { return one.Kind() == ast.ListKind }) {
				refuse(e, nested)
			}
		case ast.CallKind:
			c := e.AsCall()
			if refused[c.FunctionName()] {
				refuse(e, "the function "+c.FunctionName()+" is not supported")
			}
			if c.FunctionName() == matches {
				if text := pattern(c); text != "" {
					refuse(e, text)
				}
			}
		case ast.UnspecifiedExprKind, ast.ComprehensionKind, ast.IdentKind, ast.LiteralKind, ast.SelectKind:
		}
	}))
	return found
}

const nested = "lists in lists are not supported: use one list"

// restrictChecked refuses lists of lists that only the type check finds.
func restrictChecked(a *ast.AST) *problem {
	var found *problem
	ast.PreOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		of := a.GetType(e.ID())
		if found != nil || of == nil || of.Kind() != types.ListKind || len(of.Parameters()) != 1 {
			return
		}
		element := of.Parameters()[0].Kind()
		if element == types.ListKind || element == types.MapKind {
			found = &problem{node: e.ID(), text: nested}
		}
		if element == types.DynKind && e.Kind() == ast.ListKind && e.AsList().Size() > 0 {
			found = &problem{node: e.ID(), text: "the elements of a list must have one type"}
		}
	}))
	return found
}

// pattern returns what is wrong with the regular expression of a call of matches; empty if it is
// allowed.
func pattern(c ast.CallExpr) string {
	args := c.Args()
	if len(args) == 0 || args[len(args)-1].Kind() != ast.LiteralKind {
		return "matches() needs a literal text as its regular expression"
	}
	text, ok := args[len(args)-1].AsLiteral().(types.String)
	if !ok {
		return "" // The type check refuses it.
	}
	_, _, err := compilePattern(string(text))
	if err != nil {
		return err.Error()
	}
	return ""
}

// patternError is a regular expression that is refused.
type patternError string

// Error implements error.
func (e patternError) Error() string { return string(e) }

// compilePattern compiles a regular expression, and returns about how many instructions it has.
func compilePattern(text string) (*regexp.Regexp, uint64, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, 0, patternError("invalid regular expression: " + err.Error())
	}
	size := instructions(tree)
	if size > maxPattern {
		return nil, 0, patternError("the regular expression is too large: repeat less")
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, 0, patternError("invalid regular expression: " + err.Error())
	}
	return compiled, size, nil
}

// instructions returns about how many instructions the program of a regular expression has,
// without making it. A large number means at least that many.
func instructions(tree *syntax.Regexp) uint64 {
	sum := uint64(1 + len(tree.Rune))
	for _, sub := range tree.Sub {
		sum = min(sum+instructions(sub), maxPattern+1)
	}
	if tree.Op == syntax.OpRepeat {
		sum *= uint64(max(tree.Min, tree.Max, 1))
	}
	return min(sum, maxPattern+1)
}

// numeric are the operators whose integer literals become doubles in expressions of a value.
var numeric = map[string]bool{
	operators.Add: true, operators.Subtract: true, operators.Multiply: true, operators.Divide: true, operators.Negate: true,
	operators.Equals: true, operators.NotEquals: true,
	operators.Less: true, operators.LessEquals: true, operators.Greater: true, operators.GreaterEquals: true,
	operators.In: true,
}

// toDoubles makes integer literals doubles: CEL compares them, but finds no operator for
// "value == 0" and "value * 100".
func toDoubles(a *cel.Ast) {
	factory := ast.NewExprFactory()
	convert := func(e ast.Expr) {
		if e.Kind() != ast.LiteralKind {
			return
		}
		if whole, ok := e.AsLiteral().(types.Int); ok {
			e.SetKindCase(factory.NewLiteral(e.ID(), types.Double(whole)))
		}
	}
	ast.PostOrderVisit(a.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || !numeric[e.AsCall().FunctionName()] {
			return
		}
		for _, arg := range e.AsCall().Args() {
			convert(arg)
			if arg.Kind() == ast.ListKind {
				for _, one := range arg.AsList().Elements() {
					convert(one)
				}
			}
		}
	}))
}
