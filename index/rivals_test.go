package index

import (
	"testing"

	. "github.com/onsi/gomega"
)

// Two Pipelines that promote into one application are rivals; a Pipeline that only shows it is
// not one. SetPipeline and RemovePipeline return the others whose rivals changed.
func TestRivals(t *testing.T) {
	g := NewWithT(t)
	x := New()
	o, another := app("prod", "web"), app("prod", "other")
	into := func(promoted ...bool) Use { return Use{Objects: []Object{o, another}, Promoted: promoted} }
	g.Expect(x.SetPipeline(pipeline("a"), into(true, true))).To(BeEmpty())
	g.Expect(x.SetPipeline(pipeline("b"), into(false, false))).To(BeEmpty())
	g.Expect(x.Rivals(pipeline("a"))).To(BeEmpty())
	g.Expect(names(x.SetPipeline(pipeline("b"), into(true, false)))).To(Equal([]string{"a"}))
	g.Expect(x.SetPipeline(pipeline("b"), into(true, false))).To(BeEmpty(), "nothing changed")
	g.Expect(x.Rivals(pipeline("a"))).To(Equal([]Rival{{o, pipeline("b")}}))
	g.Expect(x.Rivals(pipeline("b"))).To(Equal([]Rival{{o, pipeline("a")}}))
	g.Expect(names(x.SetPipeline(pipeline("b"), into(true, true)))).To(Equal([]string{"a"}))
	g.Expect(x.Rivals(pipeline("a"))).To(HaveLen(2))
	g.Expect(names(x.RemovePipeline(pipeline("b")))).To(Equal([]string{"a"}))
	g.Expect(x.Rivals(pipeline("a"))).To(BeEmpty())
	g.Expect(x.Rivals(pipeline("b"))).To(BeEmpty())
}

// An application that is in two environments is one, also if the Pipeline promotes only into the
// later of them.
func TestRivalsOfAnApplicationInTwoEnvironments(t *testing.T) {
	g := NewWithT(t)
	x := New()
	o := app("prod", "web")
	x.SetPipeline(pipeline("a"), Use{Objects: []Object{o, o}, Promoted: []bool{false, true}})
	g.Expect(names(x.SetPipeline(pipeline("b"), Use{Objects: []Object{o, o}, Promoted: []bool{true, true}}))).To(Equal([]string{"a"}))
	g.Expect(x.Rivals(pipeline("a"))).To(Equal([]Rival{{o, pipeline("b")}}))
	g.Expect(x.Rivals(pipeline("b"))).To(Equal([]Rival{{o, pipeline("a")}}))
}

// An application that cannot be read is not fresh, until it is observed again.
func TestUnread(t *testing.T) {
	g := NewWithT(t)
	x := New()
	o := app("prod", "web")
	why := Freshness{Reason: "Unreadable", Message: "500"}
	g.Expect(x.SetUnread(o, why)).To(BeEmpty(), "no Pipeline uses it")
	x.SetPipeline(pipeline("a"), Use{Objects: []Object{o}})
	x.SetFreshness("prod", helm, Freshness{Fresh: true})
	seen := Observation{Found: true, Ready: true, Revision: "1.0"}
	x.Observe(o, seen)
	g.Expect(names(x.SetUnread(o, why))).To(Equal([]string{"a"}))
	g.Expect(x.SetUnread(o, why)).To(BeEmpty())
	last, known, freshness := x.Last(o)
	g.Expect(last.Revision).To(Equal("1.0"), "the last revision stays")
	g.Expect(known).To(BeTrue())
	g.Expect(freshness).To(Equal(why))
	x.SetFreshness("prod", helm, Freshness{Reason: "Unreachable"})
	_, _, freshness = x.Last(o)
	g.Expect(freshness.Reason).To(Equal("Unreachable"), "the cluster is the cause")
	x.SetFreshness("prod", helm, Freshness{Fresh: true})
	g.Expect(names(x.Observe(o, seen))).To(Equal([]string{"a"}), "though it is as before")
	_, _, freshness = x.Last(o)
	g.Expect(freshness.Fresh).To(BeTrue())

	x.SetUnread(o, why)
	x.RemovePipeline(pipeline("a"))
	x.SetPipeline(pipeline("a"), Use{Objects: []Object{o}})
	_, _, freshness = x.Last(o)
	g.Expect(freshness.Fresh).To(BeTrue())
}
