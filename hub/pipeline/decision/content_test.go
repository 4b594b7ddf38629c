package decision

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// The names of branches and tags decide nothing: a question about versions of charts, which
// are compared by their texts, has the same answer as the question in which each version is
// a commit, under any name.
func TestNamesOfBranchesDecideNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		version := func(label string) string {
			return rapid.SampledFrom([]string{"1.0.0", "1.1.0", "2.0.0", ""}).Draw(t, label)
		}
		commit := func(version string) string {
			if version == "" {
				return ""
			}
			branch := rapid.SampledFrom([]string{"", "main@", "release/1@"}).Draw(t, "branch")
			return fmt.Sprintf("%ssha1:%040x", branch, []byte(version))
		}
		environment := func(name string) (plain, named Environment) {
			plain, named = Environment{Name: name, Intent: &notify}, Environment{Name: name, Intent: &notify}
			for range rapid.IntRange(0, 3).Draw(t, "targets") {
				target := Target{Fresh: rapid.Bool().Draw(t, "fresh"), Ready: true, Revision: version("runs")}
				plain.Targets = append(plain.Targets, target)
				target.Revision = commit(target.Revision)
				named.Targets = append(named.Targets, target)
			}
			if v := version("agreed"); v != "" {
				sequence := rapid.Int64Range(1, 3).Draw(t, "sequence")
				plain.Agreed, named.Agreed = agreed(v, sequence), agreed(commit(v), sequence)
			}
			var plainEntries, namedEntries []Entry
			for n := range rapid.Int64Range(0, 3).Draw(t, "promotions") {
				v := rapid.SampledFrom([]string{"1.0.0", "1.1.0"}).Draw(t, "promoted")
				e := entry(n+1, v, rapid.Int64Range(1, 3).Draw(t, "sequence"), rapid.SampledFrom([]capstanv1.PromotionPhase{
					capstanv1.PhaseSucceeded, capstanv1.PhaseFailed, capstanv1.PhaseAwaitingMerge,
				}).Draw(t, "phase"))
				plainEntries = append(plainEntries, e)
				e.Revision = commit(v)
				namedEntries = append(namedEntries, e)
			}
			plain.Ledger, named.Ledger = NewLedger(plainEntries, 0), NewLedger(namedEntries, 0)
			return plain, named
		}
		var a, b Question
		a.First, b.First = environment("dev")
		a.Source, b.Source = a.First, b.First
		if rapid.Bool().Draw(t, "middle") {
			a.Source, b.Source = environment("staging")
		}
		a.Into, b.Into = environment("prod")
		was, is := Decide(a), Decide(b)
		if was.Create != is.Create || was.Reason != is.Reason || was.Sequence != is.Sequence {
			t.Fatalf("%+v by versions, %+v by commits", was, is)
		}
		before, after := Record(a.Into.Agreed, a.Into.Fleet, nil), Record(b.Into.Agreed, b.Into.Fleet, nil)
		if (before == nil) != (after == nil) || before != nil && before.Sequence != after.Sequence {
			t.Fatalf("agreed on %+v by versions, on %+v by commits", before, after)
		}
		if len(a.Into.Revisions()) != len(b.Into.Revisions()) {
			t.Fatalf("%q by versions, %q by commits", a.Into.Revisions(), b.Into.Revisions())
		}
	})
}

// Targets that deploy one commit from two branches agree, and show the first one's revision.
func TestOneCommitOnTwoBranchesIsOneRevision(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	main, release := fmt.Sprintf("main@sha1:%040x", 7), fmt.Sprintf("release@sha1:%040x", 7)
	revision, ok := fleet(at(main), at(release)).Agree()
	g.Expect(ok).To(BeTrue())
	g.Expect(revision).To(Equal(main))
	g.Expect(Record(agreed(release, 3), fleet(at(main)), nil)).To(Equal(agreed(release, 3)), "the same content is no new revision")
	g.Expect(Decide(question(func(q *Question) {
		q.Source.Targets, q.Source.Agreed = []Target{at(main)}, agreed(main, 2)
		q.Into.Targets = []Target{at(release)}
	})).Reason).To(Equal(UpToDate))
}
