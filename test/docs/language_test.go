package docs

import (
	"fmt"
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

// avoided are words that readers with English as a second language misread, with what to
// write instead. A key is a regular expression for whole words in any case.
var avoided = map[string]string{
	`albeit|whence|thereof|therein|lest|ere`: "a plain sentence: subject, verb, object",
	`amounts? to`:                            "is, results in",
	`bears|borne`:                            "has, carries",
	`beside`:                                 "next to, also",
	`brought by hand`:                        "changed outside the pipeline",
	`came of|comes? of`:                      "result",
	`cards?`:                                 "the name of the document in docs/requirements",
	`farewells?`:                             "disengage, removal",
	`for (?:good|ever)|forever`:              "permanently, until ...",
	`go(?:es|ing)? away|went away|gone`:      "removed, deleted, unreachable, does not exist",
	`heals?|healed`:                          "fix, recover",
	`hears?(?: of)?|heard of|unheard`:        "receives, the last contact, is reachable",
	`heeds?|heeded`:                          "uses, respects",
	`is no time(?: to wait)?`:                "must be a positive duration",
	`look(?:s|ed)? (?:at|again)`:             "checks, reads, observed, reconciles",
	`mend(?:s|ed|ing)?`:                      "fix, repair",
	`nobody|somebody|anybody|everybody`:      "no client, a user, not set",
	`seeds?`:                                 "requirements, with a link to docs/requirements",
	`(?:is|are|was|were|be|been|being) told|told of`: "is notified, is published, event",
	`tell(?:s|ing)? of|tellers?`:                     "publish, report, notifier",
	`the more so`:                                    "also",
	`whoever|whomever|whosoever|whatsoever`:          "the caller, the client, the user",
	`wish(?:es|ed)?`:                                 "demand, request",
}

// documentsOnly are avoided words that have another meaning in the program: the dashboard
// draws cards.
var documentsOnly = regexp.MustCompile(`(?i)^cards?$`)

// fixedTerms are terms of others that contain avoided words, and the error class gone, which
// is the value of a metric label.
var fixedTerms = regexp.MustCompile(`^gone$|410 Gone|user seed|user's seed|seed of an? (?:user's )?nkey`)

var (
	codeSpan = regexp.MustCompile("`[^`\n]*`")
	// quotedText is a string of JavaScript.
	quotedText = regexp.MustCompile("\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`")
	// generatedPart of a document is printed from strings of the program, which are read
	// where they are written.
	generatedPart = regexp.MustCompile(`(?s)<!-- generated: .*?<!-- end of generated: `)
	// linkTarget is the address of a link: file names are not text.
	linkTarget = regexp.MustCompile(`\]\([^)\s]*\)`)
)

// finding is an avoided word at a place.
type finding struct {
	path  string
	line  int
	word  string
	write string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q: write %s", f.path, f.line, f.word, f.write)
}

// reader finds avoided words.
type reader struct {
	words    *regexp.Regexp
	each     map[*regexp.Regexp]string
	findings []finding
}

func newReader() *reader {
	r := &reader{each: map[*regexp.Regexp]string{}}
	for words, write := range avoided {
		r.each[regexp.MustCompile(`(?i)^(?:`+words+`)$`)] = write
	}
	r.words = regexp.MustCompile(`(?i)\b(?:` + strings.Join(slices.Sorted(maps.Keys(avoided)), "|") + `)\b`)
	return r
}

// read a text that begins at a line of a file.
func (r *reader) read(path string, line int, text string) {
	document := filepath.Ext(path) == ".md"
	text = fixedTerms.ReplaceAllLiteralString(text, "")
	for _, at := range r.words.FindAllStringIndex(text, -1) {
		word := text[at[0]:at[1]]
		if !document && documentsOnly.MatchString(word) {
			continue
		}
		found := finding{path: path, line: line + strings.Count(text[:at[0]], "\n"), word: word}
		for words, write := range r.each {
			if words.MatchString(word) {
				found.write = write
			}
		}
		r.findings = append(r.findings, found)
	}
}

// blank replaces what a pattern finds by its newlines, so that lines keep their numbers.
func blank(text string, patterns ...*regexp.Regexp) string {
	for _, pattern := range patterns {
		text = pattern.ReplaceAllStringFunc(text, func(found string) string { return strings.Repeat("\n", strings.Count(found, "\n")) })
	}
	return text
}

// literals reads the string literals of a Go file: not import paths, not struct tags.
func (r *reader) literals(path string, source []byte) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				if text, err := strconv.Unquote(n.Value); err == nil {
					r.read(path, set.Position(n.Pos()).Line, text)
				}
			}
		}
		return true
	})
	return nil
}

// file reads a file of the repository by its path from the root.
func (r *reader) file(path string, raw []byte) error {
	switch ext := filepath.Ext(path); {
	case strings.HasPrefix(path, "docs/requirements/"), strings.HasSuffix(path, "_test.go"):
		return nil
	case strings.HasPrefix(path, "config/crd/"), strings.HasPrefix(path, "config/chart/files/"):
		return nil // Generated from the comments in api, or copied: the sources are read.
	case ext == ".go":
		return r.literals(path, raw)
	case ext == ".md":
		// Commands, output and names of the program are quoted as they are; the program's
		// own texts are read where they are written.
		r.read(path, 1, blank(string(raw), generatedPart, fence, codeSpan, linkTarget))
	case ext == ".js":
		for _, at := range quotedText.FindAllStringIndex(string(raw), -1) {
			r.read(path, 1+strings.Count(string(raw[:at[0]]), "\n"), string(raw[at[0]:at[1]]))
		}
	case ext == ".html", path == "Makefile",
		strings.HasPrefix(path, "config/") && (ext == ".yaml" || ext == ".txt" || ext == ".tpl" || ext == ".json"):
		r.read(path, 1, string(raw))
	}
	return nil
}

// Avoided words are in no document and in no string of the program.
func TestLanguageIsPlain(t *testing.T) {
	g := NewWithT(t)
	r := newReader()
	files := 0
	g.Expect(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == "bin" || name == "testdata" || name == ".git" || name == ".playground" || name == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		return r.file(filepath.ToSlash(name), raw)
	})).To(Succeed())
	g.Expect(files).To(BeNumerically(">", 500))

	for _, found := range r.findings {
		t.Error(found)
	}
}

// What is read of a file, and what is not.
func TestLanguageReadsTexts(t *testing.T) {
	for path, text := range map[string]string{
		"hub/a.go":               "package a\n\nimport _ \"seed\"\nvar b = `\nnobody`",
		"docs/a.md":              "`nobody` [x](seed.md)\n```\nseed\n```\nNobody",
		"hub/a.js":               "const gone = 1\n\n\n\nnotice(\"is gone\")",
		"hub/a.html":             "<p class=\"card\">\n\n\n\nIt is gone.",
		"config/rbac/a.yaml":     "# 410 Gone\n\n\n\n# for ever",
		"docs/requirements/a.md": "seed",
		"hub/a_test.go":          "package a\n\nvar b = `seed`",
		"config/crd/a.yaml":      "seed",
	} {
		t.Run(path, func(t *testing.T) {
			g := NewWithT(t)
			r := newReader()
			g.Expect(r.file(path, []byte(text))).To(Succeed())
			if strings.Contains(path, "requirements") || strings.Contains(path, "_test") || strings.Contains(path, "crd") {
				g.Expect(r.findings).To(BeEmpty())
				return
			}
			g.Expect(r.findings).To(HaveLen(1))
			g.Expect(r.findings[0].line).To(Equal(5))
			g.Expect(r.findings[0].write).NotTo(BeEmpty())
		})
	}
}
