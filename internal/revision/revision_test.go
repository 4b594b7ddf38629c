package revision

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"
)

var (
	commit = strings.Repeat("9f86d081", 5)
	digest = strings.Repeat("0cc9a844", 8)
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"main@sha1:" + commit:               {"main", "sha1:" + commit},
		"feature/a@b@sha1:" + commit:        {"feature/a@b", "sha1:" + commit},
		"refs/heads/main@sha1:" + commit:    {"refs/heads/main", "sha1:" + commit},
		"v1.2.0@sha256:" + digest:           {"v1.2.0", "sha256:" + digest},
		"sha1:" + commit:                    {"", "sha1:" + commit},
		"sha512:" + digest + digest:         {"", "sha512:" + digest + digest},
		"v1@sha384:" + digest + digest[:32]: {"v1", "sha384:" + digest + digest[:32]},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			name, part, ok := Split(text)
			g.Expect(ok).To(BeTrue())
			g.Expect([2]string{name, part}).To(Equal(want))
			g.Expect(Content(text)).To(Equal(want[1]))
		})
	}
	for _, text := range []string{
		"", "@", ":", "1.2.0", "main", "main/" + commit, commit, "main@" + commit, "main@sha1:", "main@sha1:abc", "main@sha1:" + digest,
		"main@sha256:" + commit, "main@sha1:" + strings.ToUpper(commit), "main@md5:" + commit, "main@sha1:" + commit + "/x", "@sha1:" + commit,
		"sha1:" + commit + "@main", "6.6.1+0cc9a8446c95",
	} {
		t.Run("no digest in "+text, func(t *testing.T) {
			g := NewWithT(t)
			_, _, ok := Split(text)
			g.Expect(ok).To(BeFalse())
			g.Expect(Content(text)).To(Equal(text))
		})
	}
}

func TestTheSameCommitOnTwoBranchesIsTheSame(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	g.Expect(Same("main@sha1:"+commit, "release@sha1:"+commit)).To(BeTrue())
	g.Expect(Same("main@sha1:"+commit, "sha1:"+commit)).To(BeTrue())
	g.Expect(Same("v1@sha256:"+digest, "latest@sha256:"+digest)).To(BeTrue())
	g.Expect(Same("main@sha1:"+commit, "main@sha1:"+strings.Repeat("0", 40))).To(BeFalse())
	g.Expect(Same("main@sha1:"+commit, "main")).To(BeFalse())
	g.Expect(Same("", "sha1:"+commit)).To(BeFalse())
	g.Expect(Same("", "")).To(BeTrue())
}

// chartVersion draws versions as Helm charts have them: semantic versions, with the digest
// that helm-controller appends, and with the names that users give to prereleases.
func chartVersion() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`v?[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}(-[0-9A-Za-z.-]{1,12})?(\+[0-9A-Za-z.-]{1,12})?`),
		rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("1.%d.0-sha%d.%s", rapid.IntRange(0, 2).Draw(t, "minor"), rapid.SampledFrom([]int{1, 256}).Draw(t, "algorithm"), commit)
		}),
	)
}

// Revisions of HelmReleases are compared as before this rule: by their texts.
func TestVersionsOfChartsAreComparedByTheirTexts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := chartVersion().Draw(t, "a")
		b := rapid.OneOf(chartVersion(), rapid.Just(a)).Draw(t, "b")
		if Same(a, b) != (a == b) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

// Same is an equivalence, and agrees with Content, which serves as a key of maps.
func TestSameIsAnEquivalence(t *testing.T) {
	t.Parallel()
	drawn := rapid.Custom(func(t *rapid.T) string {
		name := rapid.SampledFrom([]string{"", "main@", "release@", "a@b@", "@", "main/"}).Draw(t, "name")
		return name + rapid.SampledFrom([]string{"sha1:" + commit, "sha256:" + digest, "sha1:" + digest, "1.2.0", ""}).Draw(t, "rest")
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawn.Draw(t, "a"), drawn.Draw(t, "b"), drawn.Draw(t, "c")
		switch {
		case !Same(a, a), Same(a, b) != Same(b, a), Same(a, b) && Same(b, c) && !Same(a, c):
			t.Fatalf("no equivalence: %q, %q, %q", a, b, c)
		case Same(a, b) != (Content(a) == Content(b)):
			t.Fatalf("Same and Content differ: %q, %q", a, b)
		}
	})
}
