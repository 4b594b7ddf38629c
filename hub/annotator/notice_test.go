package annotator_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/annotator/annotation"
)

// One trouble after the other, of the same reason and within minutes: each has its own
// Event, and not one of them the words of another.
func TestOneTroubleAfterTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual(region)
	md := w.deployment("md", "t")
	w.create(md)
	w.start()
	w.awaitsEvents("md").Should(ConsistOf(HavePrefix("Warning FailedUpdate TemplateNotFound: ")))
	w.create(w.template("t", "m5.lagre"))
	w.awaitsEvents("md").Should(ConsistOf(
		HavePrefix("Warning FailedUpdate TemplateNotFound: "),
		HavePrefix(`Warning FailedUpdate InstanceTypeUnknown: EC2 has no instance type "m5.lagre"`)))
}

// Notices of two node groups of a self-managed cluster are two Events.
func TestTroublesOfASelfManagedCluster(t *testing.T) {
	t.Parallel()
	takeWorkload(t)
	w := newWorld(t, newest)
	p := w.pivot("prod", workload, "")
	inside := w.namespace + "-inside"
	p.fill(inside, 1)
	for i := range 2 {
		lost := w.deployment(fmt.Sprintf("lost-%d", i), fmt.Sprintf("missing-%d", i))
		lost.SetNamespace(inside)
		p.createIn(p.inside, lost)
	}
	w.start()
	w.awaitsEvents("prod").Should(ConsistOf(ContainSubstring(inside+"/lost-0: TemplateNotFound"), ContainSubstring(inside+"/lost-1: TemplateNotFound")))
}

// A value with thousands of malformed labels results in one Event, of a size that API servers
// accept. The notice ends when the value is fixed.
func TestMuchThatIsMalformed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual(region)
	w.create(w.template("t", "m5.large"))
	md := w.deployment("md", "t")
	odd := make([]string, 0, 500)
	for i := range 500 {
		odd = append(odd, fmt.Sprintf("%s-%d", strings.Repeat("odd", 30), i)) // Alike at their beginning.
	}
	md.SetAnnotations(map[string]string{annotation.Labels: strings.Join(odd, ",")})
	w.create(md)
	w.start()
	w.awaitsEvents("md").Should(ConsistOf(And(HavePrefix("Warning InvalidCapacityAnnotation InvalidAnnotation: "), ContainSubstring("497 more"))))
	w.g.Eventually(func() float64 { return w.metric("capstan_annotator_problems") }).Should(Equal(1.0))
	w.patch(md, `{"metadata":{"annotations":{"`+annotation.Labels+`":null}}}`)
	w.awaits(md).Should(equal(m5(region)))
	w.g.Eventually(func() float64 { return w.metric("capstan_annotator_problems") }).Should(BeZero())
}

// A message that is too long for an Event is shortened and reported.
func TestLongMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.create(w.awsCluster(strings.Repeat("é", 2000)))
	w.create(w.capiCluster("AWSCluster", ""))
	w.create(w.template("t", "m5.large"))
	w.create(w.deployment("md", "t"))
	w.start()
	w.awaitsEvents("md").Should(ConsistOf(And(HavePrefix(`Warning FailedUpdate RegionUnknown: "ééé`), HaveSuffix("é…"))))
}

// A problem is logged once, as an error, with the namespace and the name of the node group. Its end is no error.
func TestProblemsAreLoggedOnceAsErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	var mu sync.Mutex
	var lines []string
	w.logger = funcr.NewJSON(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(line, "node group") {
			lines = append(lines, line)
		}
	}, funcr.Options{LogCaller: funcr.None})
	logged := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(lines)
	}
	w.usual(region)
	w.create(w.template("t", "m5.lagre"))
	md := w.deployment("md", "t")
	w.create(md)
	w.start()
	problem := And(ContainSubstring(`"error":null`), ContainSubstring("node group has a problem"), ContainSubstring("InstanceTypeUnknown"), ContainSubstring(w.namespace), ContainSubstring(`"md"`))
	w.g.Eventually(logged).Should(ConsistOf(problem))
	w.patch(md, `{"metadata":{"labels":{"team":"one"}}}`)
	w.patch(md, `{"metadata":{"labels":{"team":"two"}}}`)
	w.g.Consistently(logged, "500ms").Should(HaveLen(1))
	w.create(w.template("right", "m5.large"))
	w.patch(md, `{"spec":{"template":{"spec":{"infrastructureRef":{"name":"right"}}}}}`)
	w.g.Eventually(logged).Should(ConsistOf(problem, And(ContainSubstring(`"level":0`), ContainSubstring("no longer exists"))))
}
