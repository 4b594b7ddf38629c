package failures

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/manifest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

var update = flag.Bool("update", false, "write docs/git-failures.md anew")

const document = "../../../docs/git-failures.md"

// The document is printed from the table, so that it cannot differ from the behaviour.
func TestDocumentIsCurrent(t *testing.T) {
	g := NewWithT(t)
	if *update {
		g.Expect(os.WriteFile(document, []byte(Document()), 0o644)).To(Succeed())
	}
	written, err := os.ReadFile(document)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(written)).To(Equal(Document()), "run `make generate`")
}

// Each class of each source is in one row, so that no error is without a rule, and none
// has two.
func TestEveryErrorHasOneClass(t *testing.T) {
	g := NewWithT(t)
	count := map[string]int{}
	for i := range Table {
		c := &Table[i]
		g.Expect(c.Evidence).NotTo(BeEmpty(), c.Name)
		g.Expect(c.Fix).NotTo(BeEmpty(), c.Name)
		count["name "+c.Name]++
		for _, class := range c.api {
			count["service "+string(class)]++
		}
		for _, class := range c.git {
			count["git "+string(class)]++
		}
		for _, cause := range c.edits {
			count["edit "+cause.Error()]++
		}
	}
	for _, class := range provider.Classes {
		g.Expect(count).To(HaveKey("service " + string(class)))
	}
	for _, class := range []gitrepo.Class{
		gitrepo.NotFound, gitrepo.Empty, gitrepo.Unauthorized, gitrepo.Forbidden, gitrepo.Untrusted, gitrepo.Invalid, gitrepo.TooLarge,
		gitrepo.Refused, gitrepo.Moved, gitrepo.RateLimited, gitrepo.Transient,
	} {
		g.Expect(count).To(HaveKey("git " + string(class)))
	}
	for what, n := range count {
		g.Expect(n).To(Equal(1), what)
	}
}

func TestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"service":         {&provider.Error{Class: provider.Forbidden}, ReasonForbidden},
		"wrapped":         {fmt.Errorf("reading: %w", &gitrepo.Error{Class: gitrepo.Empty}), ReasonBaseBranchMissing},
		"edit":            {fmt.Errorf("web.yaml: %w", manifest.ErrTwoMarkers), ReasonTwoMarkers},
		"5xx":             {&provider.Error{Class: provider.Transient}, "Transient"},
		"another error":   {os.ErrClosed, ""},
		"deadline passed": {&gitrepo.Error{Class: gitrepo.Refused, Err: context.DeadlineExceeded}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			class := Of(tc.err)
			if tc.want == "" {
				g.Expect(class).To(BeNil())
				return
			}
			g.Expect(class).NotTo(BeNil())
			g.Expect(class.Name).To(Equal(tc.want))
			g.Expect(ByReason(tc.want)).To(BeIdenticalTo(class))
		})
	}
}

// One refusal ends nothing; neither do many in a short time, nor few over a long one.
func TestPatience(t *testing.T) {
	g := NewWithT(t)
	for _, reason := range []string{ReasonUnauthorized, ReasonForbidden, ReasonRepositoryNotFound} {
		patience := ByReason(reason).Terminal().Patience
		g.Expect(patience.Ends(1, time.Hour)).To(BeFalse())
		g.Expect(patience.Ends(100, 29*time.Minute)).To(BeFalse())
		g.Expect(patience.Ends(5, 30*time.Minute)).To(BeTrue())
	}
	g.Expect(ByReason(ReasonNoMarker).Terminal().Patience.Ends(1, 0)).To(BeTrue())
}
