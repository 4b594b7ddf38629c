package expression

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// The longest times of one expression. slow is a factor for the race detector.
const (
	compiling  = time.Second * slow
	evaluating = 100 * time.Millisecond * slow
)

// took runs a function, at most three times, until it takes less than the limit: other processes
// may use the machine.
func took(t *testing.T, what string, limit time.Duration, run func()) {
	t.Helper()
	for range 3 {
		began := time.Now()
		run()
		elapsed := time.Since(began)
		t.Logf("%s took %s", what, elapsed)
		if elapsed < limit {
			return
		}
	}
	t.Errorf("%s took more than %s", what, limit)
}

// G26: an expression that is endless or huge costs a bounded time.
func TestG26ExpressionsAreBounded(t *testing.T) {
	many := fleet(500)
	for i := range many.Targets {
		many.Targets[i].Message = strings.Repeat("a", 1024)
	}
	chain := func(link string) string { return strings.Repeat(link, (maxText-100)/len(link)) }

	for name, text := range map[string]string{
		"nested comprehensions":   `targets.all(a, targets.all(b, targets.all(c, targets.all(d, a.ready || b.ready || c.ready || d.cluster != ""))))`,
		"lists that grow":         chain("targets+") + "targets == " + "targets",
		"texts that double":       `["ab"]` + strings.Repeat(".map(x,x+x)", 60) + `.exists(x, x.contains("ba"))`,
		"replace":                 `["ab"]` + chain(".map(x,x.replace('a','aaaaaaaaaa'))") + `.exists(x, x == "")`,
		"replace by itself":       `["ab"]` + chain(".map(x,x.replace('a',x))") + `.exists(x, x == "")`,
		"sets":                    `sets.contains(targets+targets, targets+targets)`,
		"sets in a comprehension": `targets.all(t, sets.equivalent(targets, sourceTargets+targets))`,
		"search":                  `["ab"]` + strings.Repeat(".map(x,x+x)", 17) + `.exists(x, x.indexOf(x + "c") > 0)`,
		"regular expressions":     `targets.all(a, targets.all(b, !a.message.matches("(a?){20}(a|b|aa)*c{100}")))`,
		"join":                    `targets.all(a, targets.map(b, b.message).join(a.message).size() > 0)`,
		"split":                   `targets.all(a, targets.all(b, b.message.split("").size() > 0))`,
		"in":                      `targets.all(a, !(a in sourceTargets) && !(a in sourceTargets))`,
		"equal lists":             `targets.all(a, targets == targets)`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(len(text)).To(BeNumerically("<=", maxText))
			var e *Expression
			var err error
			took(t, "compiling", compiling, func() { e, err = ForTargets(text) })
			if err == nil {
				took(t, "evaluating", evaluating, func() { _, err = e.EvalTargets(many) })
			}
			if err != nil {
				checkMessage(t, err)
			}
			t.Log(err)
			switch name {
			case "nested comprehensions", "sets", "replace", "texts that double":
				g.Expect(err).To(MatchError("it costs more than 100000 units: compare fewer targets, or do it in fewer steps"))
			}
		})
	}

	for name, text := range map[string]string{
		"parentheses":      strings.Repeat("(", 2000) + "true" + strings.Repeat(")", 2000),
		"open parentheses": strings.Repeat("(", 4000),
		"negations":        strings.Repeat("!", 4000) + "true",
		"minus signs":      strings.Repeat("-", 4000) + "1 == 1",
		"brackets":         strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + " == []",
		"maps":             strings.Repeat("{1:", 1000) + "1" + strings.Repeat("}", 1000) + " == {}",
		"types":            "[1]" + chain(".map(x,[x])") + " == []",
		"pairs":            "[1]" + chain(".map(x,{x:x})") + " == []",
		"conditions":       chain("true?") + "true",
		"sums":             strings.Repeat("1+", 2000) + "1 == 1",
		"calls":            strings.Repeat("size(", 700) + "1" + strings.Repeat(")", 700) + " == 1",
		"comprehensions":   strings.Repeat("[1].all(x,", 300) + "true" + strings.Repeat(")", 300),
		"fields":           "targets" + strings.Repeat(".a", 2000) + " == 1",
		"commas":           strings.Repeat(",", 4000),
		"quotes":           strings.Repeat("'", 4000),
		"patterns":         "revision.matches('" + strings.Repeat("(a{9}){9}", 400) + "')",
		"1 MiB":            strings.Repeat(" ", 1<<20) + "true",
		"no UTF-8":         strings.Repeat("\xff", 4000),
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			took(t, "compiling", compiling, func() {
				var e *Expression
				if e, err = ForTargets(text); err == nil {
					_, err = e.EvalTargets(fleet(1))
				}
			})
			if err != nil {
				t.Log(err)
				checkMessage(t, err)
			}
			if name == "1 MiB" {
				NewWithT(t).Expect(err).To(MatchError("it has 1048580 bytes, at most 4096 are allowed: shorten it"))
			}
		})
	}
}

// FuzzForTargets: nothing panics, and every message has its form.
func FuzzForTargets(f *testing.F) {
	for _, seed := range []string{
		`targets.all(t, t.ready)`, `targets[0].redy`, `compareSemver(revision, from[0]) > 0`, `[[1]].map(x, x)`, `{1: 2}`, `"\u2028" == revision`,
		`sets.contains(targets, sourceTargets)`, `revision.matches("(a{9})*")`, `revision.replace("a", "b").split(",")[3] == ""`,
	} {
		f.Add(seed)
	}
	in := fleet(3)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := compile(ofTargets, text)
		if err == nil {
			_, err = e.EvalTargets(in)
		}
		if err != nil {
			checkMessage(t, err)
		}
		if e, err := compile(ofValue, text); err == nil {
			_, err = e.EvalValue(1)
			if err != nil {
				checkMessage(t, err)
			}
		}
	})
}

func BenchmarkHit(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ForTargets(`targets.all(t, t.ready)`); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := compile(ofTargets, `targets.all(t, t.ready && t.revision == revision)`); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEval20(b *testing.B) {
	in := fleet(20)
	e, err := ForTargets(`targets.all(t, (t.ready || t.progressing) && t.revision != revision)`)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := e.EvalTargets(in); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}
