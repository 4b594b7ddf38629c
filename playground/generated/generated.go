// Package generated keeps the generated sections of documents current, for tests.
//
// Purpose: a table that a test proves stands in a document between two comments, "generated: NAME"
// and "end of generated: NAME". The test fails when the table differs, and writes it with -update.
//
// Contract: the rest of the document stays as it is. Locking: none; the tests of one document must
// not run at the same time with -update. Trade-offs: sections are found by text, so a document
// cannot quote the comments.
package generated

import (
	"os"
	"strings"
	"testing"
)

// Section compares a section of a document with its text, which has no newline at its ends. With
// update it writes the section.
func Section(t testing.TB, file, name, text string, update bool) {
	t.Helper()
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end of generated: "+name+" -->"
	before, rest, found := strings.Cut(string(written), begin)
	if !found {
		t.Fatalf("%s has no section %q", file, name)
	}
	_, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("section %q of %s has no end", name, file)
	}
	want := before + begin + text + "\n" + end + after
	switch {
	case want == string(written):
	case update:
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("section %q of %s is not current: run `make generate`; it should be:\n%s", name, file, text)
	}
}
