package messagetemplate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/capstan-hub/capstan/internal/truncate"
)

// MaxBytes is the largest size of a template.
const MaxBytes = 4096

// maxQuote is how many bytes of a template an error quotes.
const maxQuote = 80

// escapeName is the function that is added to each output. No user can write it: it is no function
// of functions.
const escapeName = "_escape"

// truncName is the function that shortens a text: trunc 12 .Revision.
const truncName = "trunc"

// functions that a template may call.
var functions = []string{"and", "or", "not", "eq", "ne", truncName}

// Link is the value of a link field.
type Link string

// Escape returns a value as it must be in the output. The value is a string, a Link or a bool.
type Escape func(value any) string

// Template of a message.
type Template struct{ parsed *template.Template }

// Parse a template. The error says what is wrong and where.
func Parse(text string) (*Template, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("is longer than %d bytes", MaxBytes)
	}
	parsed, err := template.New("template").Option("missingkey=error").Funcs(template.FuncMap{
		truncName: trunc, escapeName: func(any) string { return "" },
	}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("is no valid template: %w", err)
	}
	if parsed.Tree == nil || parsed.Root == nil || strings.TrimSpace(text) == "" {
		return nil, errors.New("is empty")
	}
	if len(parsed.Templates()) > 1 {
		return nil, errors.New("must not define other templates: define and block are not allowed")
	}
	if err := list(parsed.Root, false); err != nil {
		return nil, err
	}
	t := &Template{parsed: parsed}
	for _, sample := range samples() {
		if _, err := t.Execute(sample, func(v any) string { return fmt.Sprint(v) }); err != nil {
			return nil, fmt.Errorf("fails on a sample event: %w", err)
		}
	}
	return t, nil
}

// Execute returns the text for the values of an event, by the names of the fields. A field without a
// value is empty.
func (t *Template) Execute(values map[string]string, escape Escape) (string, error) {
	own, err := t.parsed.Clone()
	if err != nil {
		return "", err
	}
	own.Funcs(template.FuncMap{escapeName: func(v any) string { return escape(v) }})
	data := make(map[string]any, len(fields))
	for _, f := range fields {
		data[f.Name] = values[f.Name]
		if f.Link {
			data[f.Name] = Link(values[f.Name])
		}
	}
	var b strings.Builder
	if err := own.Execute(&b, data); err != nil {
		return "", err
	}
	return b.String(), nil
}

// trunc returns the first characters of a text. The count is first, as in Sprig and Helm.
func trunc(count int, value any) string {
	text := []rune(fmt.Sprint(value))
	return string(text[:min(count, len(text))])
}

func refused(n parse.Node, format string, values ...any) error {
	return fmt.Errorf("%s: %s", truncate.Bytes(n.String(), maxQuote), fmt.Sprintf(format, values...))
}

// list checks nodes, and adds the escape function to each output. with: the dot is not the event.
func list(l *parse.ListNode, with bool) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := node(n, with); err != nil {
			return err
		}
	}
	return nil
}

func node(n parse.Node, with bool) error {
	switch n := n.(type) {
	case *parse.TextNode, *parse.CommentNode:
		return nil
	case *parse.ActionNode:
		if err := pipe(n.Pipe, with); err != nil {
			return err
		}
		if len(n.Pipe.Decl) == 0 { // An assignment has no output.
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{
				NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{parse.NewIdentifier(escapeName).SetPos(n.Pos)},
			})
		}
		return nil
	case *parse.IfNode:
		return branches(&n.BranchNode, with, with)
	case *parse.WithNode:
		return branches(&n.BranchNode, with, true)
	}
	return refused(n, "only text, fields, if and with are allowed")
}

// branches checks an if or with; inside is the value of with for its first list.
func branches(n *parse.BranchNode, with, inside bool) error {
	if err := pipe(n.Pipe, with); err != nil {
		return err
	}
	if err := list(n.List, inside); err != nil {
		return err
	}
	return list(n.ElseList, with)
}

func pipe(p *parse.PipeNode, with bool) error {
	for _, c := range p.Cmds {
		for i, arg := range c.Args {
			if err := argument(c, i, arg, with); err != nil {
				return err
			}
		}
	}
	return nil
}

// argument checks one argument of a command.
func argument(c *parse.CommandNode, i int, arg parse.Node, with bool) error {
	switch a := arg.(type) {
	case *parse.DotNode, *parse.StringNode:
		return nil
	case *parse.PipeNode:
		return pipe(a, with)
	case *parse.IdentifierNode:
		if !slices.Contains(functions, a.Ident) {
			return refused(c, "function %s is not allowed; allowed are %s", a.Ident, strings.Join(functions, ", "))
		}
		if a.Ident == truncName && (len(c.Args) < 2 || c.Args[1].Type() != parse.NodeNumber) {
			return refused(c, "the first argument of trunc must be a number")
		}
		return nil
	case *parse.NumberNode:
		if first, is := c.Args[0].(*parse.IdentifierNode); !is || first.Ident != truncName || i != 1 {
			return refused(c, "numbers are allowed only as the first argument of trunc; write texts in quotes")
		}
		if !a.IsInt || a.Int64 < 1 || a.Int64 > MaxBytes {
			return refused(c, "the number must be a whole one between 1 and %d", MaxBytes)
		}
		return nil
	case *parse.FieldNode:
		if with {
			return refused(c, "inside with, the dot is the value of with; write $%s", a)
		}
		return field(c, a.Ident)
	case *parse.VariableNode:
		if len(a.Ident) > 1 && a.Ident[0] != "$" {
			return refused(c, "a variable has no fields")
		}
		return field(c, a.Ident[1:])
	}
	return refused(c, "is not allowed")
}

// field checks a path of names.
func field(c *parse.CommandNode, path []string) error {
	switch {
	case len(path) == 0:
		return nil
	case len(path) > 1:
		return refused(c, "the fields are texts and have no fields")
	}
	if _, known := byName[path[0]]; !known {
		return refused(c, "there is no field %s", path[0])
	}
	return nil
}
