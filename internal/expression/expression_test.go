package expression

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
)

// fleet has n targets; those with an odd number are not ready.
func fleet(n int) Targets {
	in := Targets{Revision: "1.4.2", From: []string{"1.4.1"}, Environment: "prod", Source: "staging"}
	for i := range n {
		in.Targets = append(in.Targets, Target{
			Cluster: fmt.Sprintf("eu-%d", i), Namespace: "shop", Revision: "1.4.1", Ready: i%2 == 0, Progressing: i%2 == 1, Message: "Helm install succeeded",
		})
		in.SourceTargets = append(in.SourceTargets, Target{Cluster: fmt.Sprintf("staging-%d", i), Namespace: "shop", Revision: "1.4.2", Ready: true})
	}
	return in
}

func TestTargets(t *testing.T) {
	for text, want := range map[string]bool{
		`true`:                          true,
		`targets.all(t, t.ready)`:       false,
		`sourceTargets.all(t, t.ready)`: true,
		`targets.exists(t, t.cluster == "eu-1" && t.progressing)`:                   true,
		`targets.exists_one(t, t.cluster == "eu-1")`:                                true,
		`targets.filter(t, t.ready).size() == 2`:                                    true,
		`size(targets) == 4 && targets[0].namespace == 'shop'`:                      true,
		`targets[0] == targets[0] && targets[0] != sourceTargets[0]`:                true,
		`targets[0] in targets && !(targets[0] in sourceTargets)`:                   true,
		`targets.map(t, t.revision) == ["1.4.1", "1.4.1", "1.4.1", "1.4.1"]`:        true,
		`has(targets[0].message) && !has(sourceTargets[0].message)`:                 true,
		`has(targets[1].progressing) && !has(targets[1].ready)`:                     true,
		`targets.all(t, t.message.startsWith("Helm"))`:                              true,
		`targets.all(t, t.message.matches("^Helm (install|upgrade)"))`:              true,
		`matches(revision, "[0-9]+")`:                                               true,
		`isSemver(revision) && !isSemver("main@sha1:abc")`:                          true,
		`compareSemver(revision, from[0]) == 1`:                                     true,
		`compareSemver("1.0.0", "v1.0.0") == 0`:                                     true,
		`compareSemver("1.0.0-rc.1", "1.0.0") < 0`:                                  true,
		`from.all(f, compareSemver(f, revision) < 0)`:                               true,
		`environment == "prod" && source == "staging"`:                              true,
		`sets.contains(targets.map(t, t.cluster), ["eu-1", "eu-2"])`:                true,
		`revision.split(".")[0] == "1" && revision.indexOf(".") == 1`:               true,
		`revision.replace(".", "-") == "1-4-2"`:                                     true,
		`targets.map(t, t.cluster).join(",").contains("eu-3")`:                      true,
		`type(targets[0]) == Target`:                                                true,
		`duration("1h") > duration("30m")`:                                          true,
		`targets.size() > 0 ? targets[0].ready : false`:                             true,
		`[] == targets.filter(t, t.cluster == "none")`:                              true,
		"targets.exists(t,\n  t.ready)":                                             true,
		`targets.filter(t, t.ready).size() * 2 >= targets.size() // a quorum`:       true,
		`double(targets.filter(t, t.ready).size()) / double(targets.size()) >= 0.9`: false,
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			e, err := ForTargets(text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(e.EvalTargets(fleet(4))).To(Equal(want))
		})
	}
}

func TestValue(t *testing.T) {
	for text, want := range map[string]bool{
		`value < 1`:                   true,
		`value <= 0.5 && value > 0`:   true,
		`value == 0.5`:                true,
		`value == 1`:                  false,
		`value != 0`:                  true,
		`1 > value`:                   true,
		`value * 100 < 51`:            true,
		`-value > -1`:                 true,
		`value in [0, 1]`:             false,
		`value in [0.5, 1.0]`:         true,
		`int(value * 100.0) % 2 == 0`: true,
		`value > 1 ? false : true`:    true,
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			e, err := ForValue(text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(e.EvalValue(0.5)).To(Equal(want))
		})
	}
}

// checkMessage checks the form of every message.
func checkMessage(t *testing.T, err error) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(len(err.Error())).To(BeNumerically("<=", maxMessage))
	g.Expect(err.Error()).NotTo(ContainSubstring("\n"))
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                                   "it is empty: write a condition, such as targets.all(t, t.ready)",
		`tragets.all(t, t.ready)`:            "undeclared reference to 'tragets' (column 1)",
		`targets[0].redy`:                    "undefined field 'redy': a target has cluster, message, namespace, progressing, ready, revision (column 11)",
		`targets.all(t, t.redy)`:             "undefined field 'redy': a target has cluster, message, namespace, progressing, ready, revision (column 17)",
		"targets.all(t,\n  t.redy)":          "undefined field 'redy': a target has cluster, message, namespace, progressing, ready, revision (line 2, column 4)",
		`has(targets[0].redy)`:               "undefined field 'redy'",
		`targets.filter(t, t.redy).size()>0`: "undefined field 'redy'",
		`targets.all(t, t.ready`:             "syntax error: missing ')' at '<EOF>' (column 23)",
		`targets.size()`:                     "its value is a int: it must be true or false, so compare it",
		`revision == 1`:                      "'==' does not take (string, int) (column 10)",
		`targets[0].ready && 1`:              "expected type 'bool' but found 'int' (column 21)",
		`now() > 1`:                          "undeclared reference to 'now' (column 4)",
		`timestamp("2026-01-01T00:00:00Z") == timestamp("2026-01-01T00:00:00Z")`: "the function timestamp is not supported",
		`google.protobuf.Timestamp{} == google.protobuf.Timestamp{}`:             "objects cannot be made here: compare the fields",
		`dyn(targets) == 1`:               "the function dyn is not supported (column 4)",
		`"%s".format([revision]) == ""`:   "the function format is not supported",
		`{"a": 1}["a"] == 1`:              "maps are not supported",
		`Target{ready: true} in targets`:  "objects cannot be made here: compare the fields",
		`[[1]] == [[1]]`:                  "lists in lists are not supported: use one list (column 1)",
		`[targets] == [targets]`:          "lists in lists are not supported: use one list (column 1)",
		`targets.map(t, [t]).size() == 1`: "lists in lists are not supported: use one list",
		`[1, "a"].size() == 2`:            "the elements of a list must have one type (column 1)",
		`revision.matches(source)`:        "matches() needs a literal text as its regular expression",
		`revision.matches("(")`:           "invalid regular expression: error parsing regexp: missing closing ): `(` (column 17)",
		`revision.matches("(a{30}){30}")`: "the regular expression is too large: repeat less (column 17)",
		`value < 1`:                       "undeclared reference to 'value' (column 1)",
		`targets.nonsense()`:              "undeclared reference to 'nonsense'",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ForTargets(text)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)))
			checkMessage(t, err)
			if text == "" {
				return
			}
			_, again := ForTargets(text)
			NewWithT(t).Expect(again).To(BeIdenticalTo(err), "errors are kept")
		})
	}
	for text, want := range map[string]string{
		`value`:                   "its value is a double: it must be true or false, so compare it",
		`value == "a"`:            "'==' does not take (double, string) (column 7)",
		`targets.all(t, t.ready)`: "undeclared reference to 'targets' (column 1)",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ForValue(text)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)))
			checkMessage(t, err)
		})
	}
}

func TestErrorsOfEvaluations(t *testing.T) {
	for text, want := range map[string]string{
		`targets[9].ready`:                    "index out of bounds: 9 (column 11)",
		`1 / (targets.size() - 4) == 1`:       "division by zero (column 3)",
		`compareSemver("latest", "1.0") == 0`: `compareSemver: "latest" is not a semantic version (column 14)`,
		`compareSemver(targets[0].message + "` + strings.Repeat("x", 1000) + `", "1.0") == 0`: "compareSemver: \"Helm install succeeded",
		`int(revision) == 1`: "(column 4)",
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			e, err := ForTargets(text)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = e.EvalTargets(fleet(4))
			g.Expect(err).To(MatchError(ContainSubstring(want)))
			checkMessage(t, err)
		})
	}
}

func TestKinds(t *testing.T) {
	g := NewWithT(t)
	ofTargets, err := ForTargets("true")
	g.Expect(err).NotTo(HaveOccurred())
	ofValue, err := ForValue("true")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = ofTargets.EvalValue(1)
	g.Expect(err).To(HaveOccurred())
	_, err = ofValue.EvalTargets(Targets{})
	g.Expect(err).To(HaveOccurred())
}

func TestCache(t *testing.T) {
	g := NewWithT(t)
	c := newCache()
	first, err := c.get(key{ofTargets, "true"})
	g.Expect(err).NotTo(HaveOccurred())
	again, err := c.get(key{ofTargets, "true"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(BeIdenticalTo(first))

	// The texts together are bounded: the expression that was used last is kept.
	long := strings.Repeat(" ", maxText-10)
	for i := range maxKeptText/maxText + 10 {
		c.keep(key{ofTargets, fmt.Sprintf("%s%10d", long, i)}, outcome{})
		_, ok := c.find(key{ofTargets, "true"})
		g.Expect(ok).To(BeTrue())
	}
	g.Expect(c.lockedSize).To(BeNumerically("<=", maxKeptText))
	g.Expect(c.lockedOutcomes.Len()).To(Equal(maxKeptText / maxText))

	for i := range 2 * maxKept {
		c.keep(key{ofValue, fmt.Sprint(i)}, outcome{})
	}
	g.Expect(c.lockedOutcomes.Len()).To(Equal(maxKept))
}

func TestConcurrentUse(t *testing.T) {
	c, in := newCache(), fleet(20)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 50 {
				e, err := c.get(key{ofTargets, fmt.Sprintf("targets.size() == %d && from.size() == 1", 20+n%3)})
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := e.EvalTargets(in); err != nil || got != (n%3 == 0) {
					t.Errorf("%d: %d: %v %v", i, n, got, err)
				}
			}
		})
	}
	all.Wait()
}
