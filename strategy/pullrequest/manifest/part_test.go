package manifest

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/internal/revision"
)

var (
	aCommit = strings.Repeat("9f86d081", 5)
	aDigest = "sha256:" + strings.Repeat("0cc9a844", 8)
)

// A marker with a part gets that part of the revision; others in the same file get theirs.
func TestParts(t *testing.T) {
	t.Parallel()
	const content = "tag: old # {\"$promotion\": \"apps:podinfo:prod:tag\"}\n" +
		"# {\"$promotion\": \"apps:podinfo:prod:digest\", \"cluster\": \"eu\"}\ndigest: 'old'\n" +
		"other: old # {\"$promotion\": \"apps:podinfo:prod:branch\"}\n" +
		"more: old # {\"$promotion\": \"apps:podinfo:prod-2:tag\"}\n"
	g := NewWithT(t)
	edited, changes, err := Edit([]byte(content), prod, "v1.2.3@"+aDigest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(edited)).To(Equal(strings.NewReplacer("tag: old #", "tag: v1.2.3 #", "'old'", "'"+aDigest+"'").Replace(strings.SplitN(content, "other", 2)[0]) +
		"other" + strings.SplitN(content, "other", 2)[1]))
	g.Expect(changes).To(HaveExactElements(
		And(HaveField("Part", revision.Tag), HaveField("To", "v1.2.3")),
		And(HaveField("Part", revision.Digest), HaveField("To", aDigest), HaveField("Clusters", []string{"eu"}))))

	again, changes, err := Edit(edited, prod, "v1.2.3@"+aDigest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(again)).To(Equal(string(edited)))
	g.Expect(changes).To(HaveEach(HaveField("From", Not(Equal("old")))))
}

func TestACommitThatLooksLikeANumberIsQuoted(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	number := strings.Repeat("1", 36) + "e123"
	edited, _, err := Edit([]byte("commit: "+aCommit+" # {\"$promotion\": \"apps:podinfo:prod:commit\"}\n"), prod, "main@sha1:"+number)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(edited)).To(HavePrefix(`commit: "` + number + `" #`))
}

func TestAPartThatTheRevisionDoesNotHave(t *testing.T) {
	t.Parallel()
	for part, tc := range map[string]struct{ revision, has string }{
		"commit": {"v1.2.3@" + aDigest, "[tag digest]"},
		"digest": {"main@sha1:" + aCommit, "[tag commit]"},
		"tag":    {aDigest, "[digest]"},
	} {
		g := NewWithT(t)
		_, _, err := Edit([]byte("a: b\nc: old # {\"$promotion\": \"apps:podinfo:prod:"+part+"\"}\n"), prod, tc.revision)
		g.Expect(err).To(MatchError(ErrPart))
		g.Expect(err.Error()).To(HavePrefix("line 2: "))
		g.Expect(err.Error()).To(HaveSuffix("revision " + tc.revision + " has no " + part + "; write one of what it has into the marker: " + tc.has))
	}
}

func TestTwoPartsAtOneScalar(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	_, _, err := Edit([]byte("# {\"$promotion\": \"apps:podinfo:prod:tag\"}\nc: old # {\"$promotion\": \"apps:podinfo:prod\"}\n"), prod, "1.2.3")
	g.Expect(err).To(MatchError(ErrTwoMarkers))
}

// An environment may have a name that ends like a part.
func TestAnEnvironmentWithTheNameOfAPart(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	m := Marker{Namespace: "apps", Pipeline: "podinfo", Environment: "prod:tag"}
	content := []byte("a: old # {\"$promotion\": \"apps:podinfo:prod:tag\"}\nb: old # {\"$promotion\": \"apps:podinfo:prod:tag:commit\"}\n")
	edited, _, err := Edit(content, m, "sha1:"+aCommit)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(edited)).To(And(ContainSubstring("a: sha1:"+aCommit+" #"), ContainSubstring("b: "+aCommit+" #")))
	g.Expect(m.Forms()).To(ConsistOf("apps:podinfo:prod:tag", "apps:podinfo:prod:tag:tag", "apps:podinfo:prod:tag:digest", "apps:podinfo:prod:tag:commit"))
}

func TestOnlyCommits(t *testing.T) {
	t.Parallel()
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	marker := func(identity string) string { return `# {"$promotion": "` + identity + `"}` }
	for name, tc := range map[string]struct {
		content string
		same    bool
	}{
		"behind the value":              {"a: b\ncommit: X " + marker("apps:podinfo:prod:commit") + "\n", true},
		"of another Pipeline":           {"commit: \"X\" " + marker("other:web:staging:commit") + "\r\n", true},
		"above the key":                 {marker("apps:podinfo:prod:commit") + "\n# a comment\ncommit: X\n", true},
		"above another key":             {marker("apps:podinfo:prod:commit") + "\na: b\ncommit: X\n", false},
		"without marker":                {"commit: X\n", false},
		"a marker without part":         {"commit: X " + marker("apps:podinfo:prod") + "\n", false},
		"another part":                  {"commit: X " + marker("apps:podinfo:prod:tag") + "\n", false},
		"and a line without marker":     {"commit: X " + marker("apps:podinfo:prod:commit") + "\nother: X\n", false},
		"and another change":            {"commit: X " + marker("apps:podinfo:prod:commit") + "\nreplicas: Y\n", false},
		"and a change on the same line": {"Y: X " + marker("apps:podinfo:prod:commit") + "\n", false},
		"and another line":              {"commit: X " + marker("apps:podinfo:prod:commit") + "\nZ", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := strings.NewReplacer("X", one, "Y", "1", "Z", "").Replace(tc.content)
			after := strings.NewReplacer("X", two, "Y", "2", "Z", "\n").Replace(tc.content)
			g.Expect(OnlyCommits([]byte(before), []byte(after))).To(Equal(tc.same))
			g.Expect(OnlyCommits([]byte(before), []byte(before))).To(BeTrue())
		})
	}
}
