package revision

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestRejected(t *testing.T) {
	g := NewWithT(t)
	r, err := ParseRejected([]string{"1.4.2", ">=2.0.0 <2.0.3", "~3.1", "main@sha1:" + commit, "4.x"})
	g.Expect(err).NotTo(HaveOccurred())
	for revision, entry := range map[string]string{
		"1.4.2": "1.4.2", "1.4.3": "", "v1.4.2": "",
		"2.0.0": ">=2.0.0 <2.0.3", "2.0.2+build.7": ">=2.0.0 <2.0.3", "2.0.3": "", "2.0.3-rc.1": ">=2.0.0 <2.0.3", "v2.0.1": ">=2.0.0 <2.0.3",
		"3.1.9": "~3.1", "3.2.0": "",
		"release@sha1:" + commit: "main@sha1:" + commit, "main": "",
		"4.x": "4.x", "4.1.0": "", // Without an operator it is one revision.
		"": "",
	} {
		found, is := r.Has(revision)
		g.Expect(found).To(Equal(entry), revision)
		g.Expect(is).To(Equal(entry != ""), revision)
	}
	_, is := Rejected{}.Has("1.0.0")
	g.Expect(is).To(BeFalse())
	_, err = ParseRejected([]string{"1.0.0", ">=2.0.0 <"})
	g.Expect(err).To(MatchError(HavePrefix(`[1]: ">=2.0.0 <" is not a range of semantic versions, such as ">=2.0.0 <2.0.3": `)))
}
