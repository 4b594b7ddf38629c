package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	yamlv2 "go.yaml.in/yaml/v2"
)

// hangs is how long what fuzzing makes, a few kilobytes, may take; it takes milliseconds.
const hangs = 20 * time.Second

// FuzzEdit edits whatever comes. In the content "$M" stands for the marker of prod
// and "$S" for that of staging, so that they travel.
func FuzzEdit(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "corpus", "*.in.yaml"))
	if err != nil || len(files) == 0 {
		f.Fatal("no corpus", err)
	}
	short := strings.NewReplacer(string(marked("$M")), "$M", string(marked("$S")), "$S")
	for i, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(short.Replace(string(content))), corpus[i%len(corpus)].value)
	}
	f.Fuzz(func(t *testing.T, text []byte, value string) {
		content := marked(string(text))
		before := bytes.Clone(content)
		watchdog := time.AfterFunc(hangs, func() { panic(fmt.Sprintf("hangs: %q, %q", content, value)) })
		defer watchdog.Stop()
		edited, changes, err := Edit(content, prod, value)
		if !bytes.Equal(content, before) {
			t.Fatal("the content was written to")
		}
		if err != nil {
			refused(t, content, err)
			return
		}
		if !Mentions(content, prod) || len(changes) == 0 {
			t.Fatal("edited without a marker")
		}
		changed := onlyScalars(t, content, edited, changes)
		if changed == bytes.Equal(edited, content) {
			t.Fatalf("changes %v, of %q into %q", changes, content, edited)
		}
		readsAsTheValue(t, content, edited, value)

		again, changes, err := Edit(edited, prod, value)
		if err != nil || !bytes.Equal(again, edited) {
			t.Fatalf("edited again %q, %v; first %q", again, err, edited)
		}
		for _, c := range changes {
			if c.From != value || c.To != value {
				t.Fatalf("%v was to be left", c)
			}
		}
	})
}

// tabs on a line of their own, which the parser bears behind a plain scalar and not
// behind a quoted one: such a file may well be refused once the value needs quotes.
var tabs = regexp.MustCompile(`[\r\n] *\t`)

func refused(t *testing.T, content []byte, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Err == nil || e.Detail == "" {
		t.Fatalf("not an Error: %v", err)
	}
	if errors.Is(err, ErrUnverified) && !tabs.Match(content) || e.Detail == misplacedDetail {
		t.Fatalf("%v: %q", err, content)
	}
	if e.Line < 0 || !errors.Is(err, ErrUnparsable) && e.Line > 1+bytes.Count(content, []byte("\n")) {
		t.Fatalf("no such line: %v", err)
	}
}

// onlyScalars fails unless all that differs is on lines that the changes name, and
// all that is new there is of the value. It tells whether anything was to differ.
func onlyScalars(t *testing.T, content, edited []byte, changes []Change) bool {
	t.Helper()
	was, is := bytes.SplitAfter(content, []byte("\n")), bytes.SplitAfter(edited, []byte("\n"))
	if len(was) != len(is) {
		t.Fatalf("%d lines became %d: %q", len(was), len(is), edited)
	}
	changed := false
	for i, c := range changes {
		single := strings.ReplaceAll(c.To, "'", "''")
		double := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(c.To)
		changed = changed || c.From != c.To
		if i > 0 && changes[i-1].Line == c.Line {
			continue // compared already
		}
		if i+1 < len(changes) && changes[i+1].Line == c.Line {
			forms := []string{c.To, "'" + single + "'", `"` + double + `"`}
			if !replacedTwice(was[c.Line-1], is[c.Line-1], forms) {
				t.Fatalf("line %d differs in more than two values: %q into %q", c.Line, content, edited)
			}
		} else if fresh := string(remainder(was[c.Line-1], is[c.Line-1])); !strings.Contains(" "+c.To+" '"+single+"' \""+double+"\" ", fresh) {
			t.Fatalf("%q is new, and not of the value: %q into %q", fresh, content, edited)
		}
		was[c.Line-1], is[c.Line-1] = nil, nil
	}
	for i := range was {
		if !bytes.Equal(was[i], is[i]) {
			t.Fatalf("line %d differs and is not told of: %q into %q", i+1, content, edited)
		}
	}
	return changed
}

// replacedTwice reports whether b is a with one of the forms in at most two places.
func replacedTwice(a, b []byte, forms []string) bool {
	for at := 0; at <= len(b) && bytes.HasPrefix(a, b[:at]); at++ {
		for _, form := range append(forms, "") {
			rest, ok := bytes.CutPrefix(b[at:], []byte(form))
			if !ok {
				continue
			}
			for from := at; from <= len(a); from++ {
				fresh := string(remainder(a[from:], rest))
				if slices.ContainsFunc(forms, func(form string) bool { return strings.Contains(" "+form+" ", fresh) }) {
					return true
				}
			}
		}
	}
	return false
}

// remainder returns what of b is left without the beginning and the end that a has too.
func remainder(a, b []byte) []byte {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return b
}

// readsAsTheValue fails unless the parser beneath sigs.k8s.io/yaml reads the same of
// both but the value. (What that makes of it then, JSON, is not asked for here: keys
// that are numbers or booleans become strings, of which equal ones replace each
// other at random.) What it could not read before says nothing.
func readsAsTheValue(t *testing.T, content, edited []byte, value string) {
	t.Helper()
	was, err := stream(content)
	if err != nil {
		return
	}
	is, err := stream(edited)
	if err != nil {
		t.Fatalf("%q became %q, which is not read: %v", content, edited, err)
	}
	for _, leaf := range leaves(any(was), any(is)) {
		number, ok := leaf.(int)
		same := leaf == value || ok && integer(value) && strconv.Itoa(number) == value
		if !same {
			t.Fatalf("%q became %q, of which %#v is read", content, edited, leaf)
		}
	}
}

func stream(content []byte) ([]any, error) {
	var all []any
	decoder := yamlv2.NewDecoder(bytes.NewReader(content))
	for {
		var document any
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, document)
	}
}
