package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"
)

// marked replaces "$M" by the marker of prod and "$S" by that of staging.
func marked(text string) []byte {
	return []byte(strings.NewReplacer(
		"$M", `# {"$promotion": "apps:podinfo:prod"}`,
		"$S", `# {"$promotion": "apps:podinfo:staging"}`,
	).Replace(text))
}

func TestErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		value   string
		is      error
		line    int
		says    string
	}{
		"no marker":                      {content: "version: 6.0.0\n", is: ErrNoMarker},
		"empty file":                     {content: "", is: ErrNoMarker},
		"only another's marker":          {content: "version: 6.0.0 $S\n", is: ErrNoMarker, says: `"apps:podinfo:prod"`},
		"only in a block scalar":         {content: "a: |\n  version: 6.0.0 $M\n", is: ErrNoMarker},
		"only in a multi-line string":    {content: "a: 'x\n\n  $M\n\n  y'\n", is: ErrNoMarker},
		"only in a longer comment":       {content: "version: 6.0.0 # see $M\n", is: ErrNoMarker, says: "comment of its own"},
		"marker with text behind it":     {content: "version: 6.0.0 $M now\n", is: ErrNoMarker},
		"only in a file without a value": {content: "# see $M\n", is: ErrNoMarker},

		"not YAML":            {content: "version: 6.0.0 $M\na: 'b\n", is: ErrUnparsable, line: 2},
		"not YAML behind it":  {content: "version: 6.0.0 $M\n---\na: b\n c: d\n", is: ErrUnparsable, line: 4},
		"two keys on a line":  {content: "a: b\nversion: 6.0.0: x $M\n", is: ErrUnparsable, line: 2},
		"an indenting tab":    {content: "a:\n\tversion: 6.0.0 $M\n", is: ErrUnparsable, line: 2},
		"unknown alias":       {content: "version: 6.0.0 $M\nb: *x\n", is: ErrUnparsable},
		"a template":          {content: "{{- if .Values.x }}\nversion: 6.0.0 $M\n{{- end }}\n", is: ErrUnparsable, says: "a template cannot be edited"},
		"a templated value":   {content: "version: {{ .Values.version }} $M\n", is: ErrNotScalar, line: 1},
		"not UTF-8":           {content: "a: \xff\nversion: 6.0.0 $M\n", is: ErrUnparsable, says: "UTF-8"},
		"control characters":  {content: "a: \x01\nversion: 6.0.0 $M\n", is: ErrUnparsable, says: "control characters"},
		"nested beyond depth": {content: "a: " + strings.Repeat("[", 20_000) + "\nversion: 6.0.0 $M\n", is: ErrUnparsable, says: "depth"},

		"too large": {content: "version: 6.0.0 $M\n" + strings.Repeat("# x\n", MaxBytes/4), is: ErrTooLarge, says: "file of its own"},

		"two, one at a boolean":    {content: "a: 6.0.0 $M\nb: true $M\n", is: ErrTwoMarkers, line: 2, says: "remove the marker from this line"},
		"two in the second, too":   {content: "a: yes $M\n---\na: no $M\nc: 6.0.0\n$M\nb: 6.0.0\n", is: ErrTwoMarkers, line: 3},
		"of two environments":      {content: "$S\nversion: 6.0.0 $M\n", is: ErrTwoMarkers, line: 2, says: `"apps:podinfo:staging"`},
		"of two environments, too": {content: "$M\nversion: 6.0.0 $S\n", is: ErrTwoMarkers, line: 2},

		"behind a mapping's key":       {content: "spec: $M\n  version: 6.0.0\n", is: ErrNotScalar, line: 1, says: "directly above its key"},
		"behind a list's key":          {content: "spec: $M\n- 6.0.0\n", is: ErrNotScalar, line: 1},
		"above a mapping's key":        {content: "a: b\n$M\nspec:\n  version: 6.0.0\n", is: ErrNotScalar, line: 2},
		"above a flow mapping's key":   {content: "$M\nspec: {version: 6.0.0}\n", is: ErrNotScalar, line: 1},
		"above a flow mapping":         {content: "$M\n{version: 6.0.0}\n", is: ErrNotScalar, line: 1},
		"above an item that is a map":  {content: "$M\n- version: 6.0.0\n", is: ErrNotScalar, line: 1},
		"above an item that is a list": {content: "$M\n- - 6.0.0\n", is: ErrNotScalar, line: 1},
		"above a complex key":          {content: "$M\n? version\n: 6.0.0\n", is: ErrNotScalar, line: 1},
		"behind a complex key":         {content: "? version $M\n: 6.0.0\n", is: ErrNotScalar, line: 1},
		"behind a flow mapping":        {content: "spec: {version: 6.0.0} $M\n", is: ErrNotScalar, line: 1},
		"behind a flow sequence":       {content: "spec: [6.0.0] $M\n", is: ErrNotScalar, line: 1},
		"behind an empty mapping":      {content: "spec: {} $M\n", is: ErrNotScalar, line: 1},
		"behind an opening bracket":    {content: "spec: [ $M\n 6.0.0]\n", is: ErrNotScalar, line: 1},
		"behind a closing bracket":     {content: "spec: [ 6.0.0\n ] $M\n", is: ErrNotScalar, line: 2},
		"behind a dash":                {content: "- $M\n  - 6.0.0\n", is: ErrNotScalar, line: 1},
		"behind a document's marker":   {content: "--- $M\nversion: 6.0.0\n", is: ErrNotScalar, line: 1},
		"behind a document's end":      {content: "version: 6.0.0\n... $M\n", is: ErrNotScalar, line: 2},
		"behind a directive":           {content: "%YAML 1.1 $M\n---\nversion: 6.0.0\n", is: ErrNotScalar, line: 1},
		"above a document's marker":    {content: "a: b\n$M\n---\nversion: 6.0.0\n", is: ErrNotScalar, line: 2},
		"above nothing":                {content: "version: 6.0.0\n$M\n", is: ErrNotScalar, line: 2},
		"above an empty line":          {content: "a: b\n$M\n\nversion: 6.0.0\n", is: ErrNotScalar, line: 2},
		"above, further right":         {content: "a:\n  b: c\n  $M\nversion: 6.0.0\n", is: ErrNotScalar, line: 3},
		"above, further left":          {content: "a:\n$M\n  version: 6.0.0\n", is: ErrNotScalar, line: 2},
		"at an alias":                  {content: "a: &v 6.0.0\nversion: *v $M\n", is: ErrNotScalar, line: 2, says: "the alias *v"},
		"above an alias":               {content: "a: &v 6.0.0\n$M\nversion: *v\n", is: ErrNotScalar, line: 2, says: "the alias *v"},
		"at a merged alias":            {content: "a: &v {b: c}\nd:\n  <<: *v $M\n", is: ErrNotScalar, line: 3, says: "the alias *v"},
		"at no value in a flow":        {content: "{version, $M\n a}\n", is: ErrNotScalar, line: 1, says: `write ""`},

		"at no value with an anchor":  {content: "$M\na: &x\nb: *x\n", is: ErrNotScalar, line: 1, says: `write ""`},
		"at no value, its anchor and": {content: "a: &x $M\n  !\n", is: ErrNotScalar, line: 1},

		"a literal":                  {content: "version: | $M\n  6.0.0\n", is: ErrMultiline, line: 1, says: "block scalar"},
		"a folded scalar":            {content: "$M\nversion: >-\n  6.0.0\n", is: ErrMultiline, line: 1, says: "block scalar"},
		"an anchored literal":        {content: "version: &a |2 $M\n   6.0.0\n", is: ErrMultiline, line: 1},
		"a plain scalar over lines":  {content: "version: 6.0.0\n  beta $M\n", is: ErrMultiline, line: 2, says: "on one line"},
		"a quoted scalar over lines": {content: "$M\nversion: \"6.0.0\n  beta\"\n", is: ErrMultiline, line: 1},

		"a number by its tag":    {content: "version: !!int 6 $M\n", is: ErrNotString, line: 1, says: "remove the tag"},
		"a float by its tag":     {content: "version: !!float \"6\" $M\n", is: ErrNotString, line: 1},
		"bytes by their tag":     {content: "version: !!binary NjEw $M\n", is: ErrNotString, line: 1},
		"null by its tag":        {content: "version: !!null $M\n", is: ErrNotScalar, line: 1},
		"a thing by its tag":     {content: "version: !version 6.0.0 $M\n", is: ErrNotString, line: 1},
		"a string by an alias":   {content: "%TAG !e! tag:yaml.org,2002:\n---\nversion: !e!str 6.0.0 $M\n", is: ErrNotString, line: 3},
		"unclear by its tag":     {content: "version: ! 6.0 $M\n", is: ErrNotString, line: 1},
		"an empty revision":      {content: "version: 6.0.0 $M\n", value: "-", is: ErrValue, says: "empty"},
		"a line break":           {content: "version: 6.0.0 $M\n", value: "6\n1", is: ErrValue, says: "U+000A"},
		"a control character":    {content: "version: 6.0.0 $M\n", value: "6\x07", is: ErrValue, says: "U+0007"},
		"a tab":                  {content: "version: 6.0.0 $M\n", value: "6\t1", is: ErrValue, says: "U+0009"},
		"a next line":            {content: "version: 6.0.0 $M\n", value: "6\u0085", is: ErrValue, says: "U+0085"},
		"a line separator":       {content: "version: 6.0.0 $M\n", value: "6\u2028", is: ErrValue, says: "U+2028"},
		"a change of direction":  {content: "version: 6.0.0 $M\n", value: "6\u202e1", is: ErrValue, says: "U+202E"},
		"a byte order mark":      {content: "version: 6.0.0 $M\n", value: "\ufeff6", is: ErrValue, says: "U+FEFF"},
		"no UTF-8":               {content: "version: 6.0.0 $M\n", value: "6\xff", is: ErrValue, says: "UTF-8"},
		"no marker for no value": {content: "", value: "\x00", is: ErrValue},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			value := tc.value
			switch value {
			case "":
				value = newVersion
			case "-":
				value = ""
			}
			edited, changes, err := Edit(marked(tc.content), prod, value)
			g.Expect(err).To(MatchError(tc.is))
			g.Expect(edited).To(BeNil())
			g.Expect(changes).To(BeNil())
			var e *Error
			g.Expect(errors.As(err, &e)).To(BeTrue())
			if tc.line > 0 || !errors.Is(err, ErrUnparsable) {
				g.Expect(e.Line).To(Equal(tc.line), err.Error())
			}
			g.Expect(e.Detail).NotTo(BeEmpty())
			g.Expect(err.Error()).To(ContainSubstring(tc.says))
			if e.Line > 0 {
				g.Expect(err.Error()).To(HavePrefix("line "))
			}
		})
	}
}

func TestMentions(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		want    bool
	}{
		"behind a value":       {"version: 6.0.0 $M\n", true},
		"among others'":        {"a: b $S\nversion: 6.0.0 $M\n", true},
		"without a final line": {"version: 6.0.0 $M", true},
		"in text, perhaps":     {"a: |\n  b $M\n", true},
		"another's":            {"version: 6.0.0 $S\n", false},
		"its name alone":       {"a: apps:podinfo:prod\n", false},
		"no comment":           {`a: {"$promotion": "apps:podinfo:prod"}`, false},
		"a hash in a word":     {`a: b#{"$promotion": "apps:podinfo:prod"}`, false},
		"not all of a comment": {"version: 6.0.0 $M.\n", false},
		"nothing":              {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Mentions(marked(tc.content), prod)).To(Equal(tc.want))
		})
	}
}

// Environments have no pattern: whatever JSON can spell can be marked.
func TestEnvironmentsOfAnyName(t *testing.T) {
	for _, environment := range []string{"a:b", `"quoted" \ # {`, "продакшн", "two words", "'", "\u2028"} {
		t.Run(environment, func(t *testing.T) {
			g := NewWithT(t)
			m := Marker{Namespace: "apps", Pipeline: "podinfo", Environment: environment}
			comment, err := json.Marshal(map[string]string{"$promotion": m.String()})
			g.Expect(err).NotTo(HaveOccurred())
			edited, _, err := Edit([]byte("version: 6.0.0 # "+string(comment)+"\n"), m, newVersion)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(edited)).To(Equal("version: 6.1.0 # " + string(comment) + "\n"))
		})
	}
}

// noCluster are the clusters of one marker without a cluster.
var noCluster = []string{""}

func TestChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		content, value string
		want           []Change
	}{
		"of an object": {
			"kind: HelmRelease\nmetadata: {name: podinfo, namespace: apps}\nversion: 6.0.0 $M\n", newVersion,
			[]Change{{3, "version", "6.0.0", newVersion, "HelmRelease apps/podinfo", noCluster, ""}},
		},
		"of an object without namespace": {
			"kind: Cluster\nmetadata: {name: a}\nversion: '6.0.0' $M\n", newVersion,
			[]Change{{3, "version", "6.0.0", newVersion, "Cluster a", noCluster, ""}},
		},
		"of several": {
			"kind: A\nmetadata: {name: a}\nv: 6.0.0 $M\n---\nv: 6.1.0 $M\n---\nmetadata: [name]\nv: \"5\" $M\n", newVersion,
			[]Change{{3, "v", "6.0.0", newVersion, "A a", noCluster, ""}, {5, "v", newVersion, newVersion, "", noCluster, ""}, {8, "v", "5", newVersion, "", noCluster, ""}},
		},
		"of several in one object": {
			"kind: A\nmetadata: {name: a}\nspec:\n  chart: 6.0.0 $M\n  image: {name: web, tag: 'v5', $M\n   digest: x}\n  flags: [on, \"4\", $M\n   off]\n", newVersion,
			[]Change{{4, "chart", "6.0.0", newVersion, "A a", noCluster, ""}, {5, "tag", "v5", newVersion, "A a", noCluster, ""}, {7, "", "4", newVersion, "A a", noCluster, ""}},
		},
		"of two on a line": {
			"[\n$M\n5, 4 $M\n]", "7", []Change{{3, "", "5", "7", "", noCluster, ""}, {3, "", "4", "7", "", noCluster, ""}},
		},
		"of what is no object": {"- 6.0.0 $M\n", newVersion, []Change{{1, "", "6.0.0", newVersion, "", noCluster, ""}}},
		"from a number":        {"v: 7 $M\n", "8", []Change{{1, "v", "7", "8", "", noCluster, ""}}},
		"from a fraction":      {"v: 1.10 $M\n", "1.10", []Change{{1, "v", "1.10 (number)", "1.10", "", noCluster, ""}}},
		"from other digits":    {"v: 0x10 $M\n", "16", []Change{{1, "v", "0x10 (number)", "16", "", noCluster, ""}}},
		"from a boolean":       {"v: yes $M\n", "yes", []Change{{1, "v", "yes (boolean)", "yes", "", noCluster, ""}}},
		"from null":            {"v: ~ $M\n", "1", []Change{{1, "v", "~ (null)", "1", "", noCluster, ""}}},
		"from nothing":         {"v: $M\n", "1", []Change{{1, "v", "(null)", "1", "", noCluster, ""}}},
		"from an escape":       {`v: "\u0036" $M`, "7", []Change{{1, "v", "6", "7", "", noCluster, ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, changes, err := Edit(marked(tc.content), prod, tc.value)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(changes).To(Equal(tc.want))
		})
	}
}

// What is there already is left as it is written, whatever the style.
func TestNothingToChange(t *testing.T) {
	for value, texts := range map[string][]string{
		"6.1.0": {"6.1.0", `"6.1.0"`, "'6.1.0'", `"6\u002e1.0"`, "&a 6.1.0", "!!str 6.1.0"},
		"1.10":  {`"1.10"`, "'1.10'", "!!str 1.10"},
		"7":     {"7", `"7"`, "'7'", "!!str 7"},
	} {
		for _, text := range texts {
			t.Run(text, func(t *testing.T) {
				g := NewWithT(t)
				content := marked("a: b\nversion: " + text + " $M\n")
				edited, changes, err := Edit(content, prod, value)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(&edited[0]).To(BeIdenticalTo(&content[0]), "it is content itself")
				g.Expect(edited).To(HaveLen(len(content)))
				g.Expect(changes).To(Equal([]Change{{Line: 2, Field: "version", From: value, To: value, Clusters: noCluster}}))
			})
		}
	}
}

// An alias bomb is a file like any other: aliases are not followed.
func TestAliasBomb(t *testing.T) {
	g := NewWithT(t)
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 60; i++ {
		alias := "*a" + strconv.Itoa(i-1)
		bomb.WriteString("a" + strconv.Itoa(i) + ": &a" + strconv.Itoa(i) + " [" + strings.Repeat(alias+", ", 8) + alias + "]\n")
	}
	bomb.WriteString("self: &self [*self]\n")
	content := append([]byte(bomb.String()), marked("version: 6.0.0 $M\n")...)
	edited, _, err := Edit(content, prod, newVersion)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(edited).To(Equal(bytes.Replace(content, []byte("6.0.0"), []byte(newVersion), 1)))
}

// worstRatio is how much longer an edit may take than parsing the same file once,
// measured beside it. It parses twice and walks the file a few times; what is
// quadratic is beyond it at this size.
const (
	worstRatio = 50
	worstSize  = MaxBytes / 8
)

// Nothing is quadratic: neither in nodes, nor in the length of a line, nor in markers.
func TestWorstFiles(t *testing.T) {
	fill := func(unit string) string { return strings.Repeat(unit, worstSize/len(unit)) }
	mark, other := string(marked("$M\n")), string(marked("$S\n"))
	for name, begin := range map[string]string{
		"one long line":         "a: [" + fill("é,") + "]\n",
		"deep and long":         "a: " + strings.Repeat("[", 9_000) + fill("x,") + strings.Repeat("]", 9_000) + "\n",
		"markers of others":     fill(other) + "a: b\n",
		"values of others":      "a:\n" + fill("- 1 "+other),
		"markers above a value": fill(mark) + "a: 6.1.0\n",
		"half a marker":         "a: b " + fill(`#{"$promotion"`) + "\n",
		"hashes":                "a: b " + fill("# ") + `"$promotion"` + "\n",
		"hashes and braces":     "a: b " + fill(`#{"a":"`) + `"$promotion"` + "\n",
		"quotes":                "a: ['" + fill("''") + "']\n",
		"a block scalar":        "a: |\n" + fill("  x\n"),
		"marked documents":      fill("---\na: 6.1.0 " + mark),
		"documents":             fill("---\na: b\n"),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			content := begin + "---\nversion: 6.0.0 " + mark
			began := time.Now()
			_, err := parse([]byte(content))
			g.Expect(err).NotTo(HaveOccurred())
			parsed := time.Since(began)

			began = time.Now()
			edited, _, err := Edit([]byte(content), prod, newVersion)
			g.Expect(time.Since(began)).To(BeNumerically("<", worstRatio*parsed))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(edited) == begin+"---\nversion: 6.1.0 "+mark).To(BeTrue())
		})
	}
}

// A file of the largest size is edited; one byte more is too much.
func TestLargestFile(t *testing.T) {
	g := NewWithT(t)
	end := string(marked("version: 6.0.0 $M\n"))
	content := "# " + strings.Repeat("x", MaxBytes-len(end)-3) + "\n" + end
	_, _, err := Edit([]byte(content), prod, newVersion)
	g.Expect(err).NotTo(HaveOccurred())
	_, _, err = Edit([]byte("#"+content), prod, newVersion)
	g.Expect(err).To(MatchError(ErrTooLarge))
}

// What Edit compares after an edit, given files that are edited wrongly.
func TestVerify(t *testing.T) {
	const before = "a: &x [b, *x]\nv: 6.0.0\n---\n'c': !t {d: 1}\n"
	for name, tc := range map[string]struct {
		after string
		fails bool
	}{
		"as it should be":    {"a: &x [b, *x]\nv: 6.1.0\n---\n'c': !t {d: 1}\n", false},
		"in quotes":          {"a: &x [b, *x]\nv: \"6.1.0\"\n---\n'c': !t {d: 1}\n", false},
		"another value":      {"a: &x [b, *x]\nv: 6.0.0\n---\n'c': !t {d: 1}\n", true},
		"another type":       {"a: &x [b, *x]\nv: {6.1.0: }\n---\n'c': !t {d: 1}\n", true},
		"another neighbour":  {"a: &x [e, *x]\nv: 6.1.0\n---\n'c': !t {d: 1}\n", true},
		"one neighbour more": {"a: &x [b, *x, b]\nv: 6.1.0\n---\n'c': !t {d: 1}\n", true},
		"another anchor":     {"a: &y [b, *y]\nv: 6.1.0\n---\n'c': !t {d: 1}\n", true},
		"no alias":           {"a: &x [b, x]\nv: 6.1.0\n---\n'c': !t {d: 1}\n", true},
		"an anchor more":     {"a: &x [b, *x]\nv: &z 6.1.0\n---\n'c': !t {d: 1}\n", true},
		"other quotes":       {"a: &x [b, *x]\nv: 6.1.0\n---\n\"c\": !t {d: 1}\n", true},
		"another tag":        {"a: &x [b, *x]\nv: 6.1.0\n---\n'c': !u {d: 1}\n", true},
		"another number":     {"a: &x [b, *x]\nv: 6.1.0\n---\n'c': !t {d: 2}\n", true},
		"a document less":    {"a: &x [b, *x]\nv: 6.1.0\n", true},
		"a document more":    {"a: &x [b, *x]\nv: 6.1.0\n---\n'c': !t {d: 1}\n---\n", true},
		"no YAML":            {"a: &x [b, *x]\nv: 6.1.0: \n---\n'c': !t {d: 1}\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			documents, err := parse([]byte(before))
			g.Expect(err).NotTo(HaveOccurred())
			at := documents[0].Content[0].Content[3]
			g.Expect(at.Value).To(Equal("6.0.0"))
			err = verify([]byte(tc.after), documents, map[*yaml.Node]string{at: newVersion})
			if tc.fails {
				g.Expect(err).To(MatchError(ErrUnverified))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
		})
	}
}
