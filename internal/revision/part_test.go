package revision

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestValue(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[Part]string{
		"main@sha1:" + commit:            {Tag: "main", Commit: commit},
		"v1.2.3@sha1:" + commit:          {Tag: "v1.2.3", Commit: commit},
		"refs/tags/v1@sha1:" + commit:    {Tag: "v1", Commit: commit},
		"refs/heads/main@sha1:" + commit: {Commit: commit},
		"sha1:" + commit:                 {Commit: commit},
		"6.5.0@sha256:" + digest:         {Tag: "6.5.0", Digest: "sha256:" + digest},
		"a@b@sha512:" + digest + digest:  {Tag: "a@b", Digest: "sha512:" + digest + digest},
		"sha256:" + digest:               {Digest: "sha256:" + digest},
		commit:                           {Tag: commit, Commit: commit},
		"6.5.0":                          {Tag: "6.5.0"},
		"6.5.0@sha256":                   {}, // No digest that is known.
		"main@sha1:" + commit[:8]:        {},
		"6.6.1+0cc9a8446c95":             {Tag: "6.6.1+0cc9a8446c95"},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			whole, err := Value(text, "")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(whole).To(Equal(text))
			for _, part := range Parts {
				value, err := Value(text, part)
				g.Expect(value).To(Equal(want[part]), string(part))
				if want[part] != "" {
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(Has(text)).To(ContainElement(part))
					continue
				}
				g.Expect(err).To(MatchError(HavePrefix("revision " + text + " has no " + string(part))))
				for _, other := range Has(text) {
					g.Expect(err.Error()).To(ContainSubstring(string(other)))
				}
			}
			g.Expect(Has(text)).To(HaveLen(len(want)))
		})
	}
}
