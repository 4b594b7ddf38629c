package instancestate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capstan-hub/capstan/hub/instancestate"
)

// course is a sequence of sample events about scheduled changes, and the labels after it.
type course struct {
	Name      string
	Files     []string
	Labels    map[string]string
	PoolLabel string
}

func courses(g *WithT) (all []course) {
	raw, err := os.ReadFile(filepath.Join("testdata", "aws-events", "maintenance.json"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(raw, &all)).To(Succeed())
	return all
}

// Maintenance that AWS closes, or completes for an instance, no longer shows in labels, in any order of delivery. Another one
// stays. A state that is known is shown instead.
func TestMaintenanceFixtures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	wants := map[*unstructured.Unstructured]string{}
	var bodies []string
	n := 0
	for _, c := range courses(w.g) {
		for _, how := range []string{"in order", "reversed", "after a state"} {
			renamed := map[string]string{}
			for id, label := range c.Labels {
				renamed[id] = instanceID(n)
				m := w.machine(fmt.Sprintf("m-%d", n), instanceID(n))
				w.create(m)
				if how == "after a state" {
					bodies = append(bodies, stateChange(instanceID(n), "running", 0))
					if label == "" {
						label = "running"
					}
				}
				wants[m] = label
				n++
			}
			files := slices.Clone(c.Files)
			if how == "reversed" {
				slices.Reverse(files)
			}
			for _, file := range files {
				raw, err := os.ReadFile(filepath.Join("testdata", "aws-events", file))
				w.g.Expect(err).NotTo(HaveOccurred())
				body := string(raw)
				for id, own := range renamed {
					body = strings.ReplaceAll(body, id, own)
				}
				bodies = append(bodies, body)
			}
		}
	}
	w.events()
	w.start()
	w.send("events", bodies...)
	w.send("events", bodies...) // Each is delivered twice.
	w.awaitsEmpty("events")
	for m, want := range wants {
		w.g.Expect(w.label(m)).To(Equal(want), m.GetName())
		shown := w.getIn(w.Client, m).GetAnnotations()
		if want == "" {
			w.g.Expect(shown).NotTo(HaveKey(instancestate.AnnotationEvent), m.GetName())
		} else {
			w.g.Expect(shown).To(HaveKey(instancestate.AnnotationEvent), m.GetName())
		}
	}
	w.g.Expect(wants).To(HaveLen(27))
}

// The same for a managed pool that has all of the instances.
func TestMaintenanceFixturesOfPools(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.eks("c", "")
	wants := map[*unstructured.Unstructured]string{}
	var bodies []string
	for i, c := range courses(w.g) {
		var own []string
		var replace []string
		for n := range 3 {
			id := instanceID(10*i + n)
			own = append(own, id)
			replace = append(replace, fmt.Sprintf("i-0aaaaaaaaaaaaaaa%d", n+1), id)
		}
		pool := w.managedPool(fmt.Sprintf("pool-%d", i), "c", own...)
		w.create(pool)
		wants[pool] = c.PoolLabel
		for _, file := range c.Files {
			raw, err := os.ReadFile(filepath.Join("testdata", "aws-events", file))
			w.g.Expect(err).NotTo(HaveOccurred())
			bodies = append(bodies, strings.NewReplacer(replace...).Replace(string(raw)))
		}
	}
	w.events()
	w.start()
	w.send("events", bodies...)
	w.awaitsEmpty("events")
	for pool, want := range wants {
		w.g.Expect(w.label(pool)).To(Equal(want), pool.GetName())
	}
}

// maintenance is an event of Health about an instance, some seconds after begin.
func maintenance(change, status, id string, seconds int) string {
	return event("aws.health", "AWS Health Event", seconds, fmt.Sprintf(
		`{"service":"EC2","eventTypeCategory":"scheduledChange","eventTypeCode":"REBOOT","eventArn":%q,"statusCode":%q,"affectedEntities":[{"entityValue":%q}]}`, change, status, id))
}

// The end of maintenance is written and published, is not remediated, and waits for no handler: the label shows a state again whose
// event the handlers have reported before.
func TestTheEndOfMaintenance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.options.DriftGrace = time.Second
	w.usual()
	m, owner := w.owned("m", instanceID(0))
	stated := w.machine("stated", instanceID(1))
	w.create(m)
	w.create(stated)
	w.events("handlers", []string{"drainer"}, "handlerTimeout", "1h", "remediate", []string{"scheduled-maintenance"})
	w.start()

	// Only the end, and then the beginning, late: neither labels nor remediates.
	w.send("events", maintenance("a", "closed", instanceID(0), 10))
	w.awaitsEmpty("events")
	w.send("events", maintenance("a", "upcoming", instanceID(0), 5))
	w.awaitsEmpty("events")
	w.g.Expect(w.label(m)).To(BeEmpty())
	w.g.Expect(w.getIn(w.Client, owner).GetAnnotations()).NotTo(HaveKey(clusterv1.RemediateMachineAnnotation))

	running := stateChange(instanceID(1), "running", 0)
	w.send("events", running)
	w.awaits(stated).Should(Equal("running"))
	w.patch(stated, `{"metadata":{"annotations":{"`+instancestate.AnnotationProcessed("drainer")+`":"`+idOf(w.g, running)+`"}}}`)
	w.awaitsEmpty("events")
	w.send("events", maintenance("a", "upcoming", instanceID(1), 5))
	w.awaits(stated).Should(Equal("scheduled-maintenance"))
	w.awaitsEvents("stated").Should(ContainElement(HavePrefix("Warning ScheduledMaintenance Now scheduled-maintenance (previously running)")))
	w.send("events", maintenance("a", "closed", instanceID(1), 6))
	w.awaits(stated).Should(Equal("running"))
	w.awaitsEmpty("events") // No message waits for the handler, which is down.
	w.awaitsEvents("stated").Should(ContainElement(And(HavePrefix("Normal MaintenanceEnded Now running (previously scheduled-maintenance)"), HaveSuffix(": REBOOT"))))
	shown := w.getIn(w.Client, stated)
	behind, err := instancestate.GetEventFromSQS(t.Context(), shown)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(behind.ID).To(Equal(idOf(w.g, running)))
	w.g.Expect(shown.GetAnnotations()).NotTo(HaveKey(instancestate.AnnotationHandlers))
	w.g.Expect(w.sqs.Bodies(region, "dead")).To(BeEmpty())

	// No label is expected: one that another client writes is removed.
	w.patch(m, `{"metadata":{"labels":{"ec2-instance-state":"running"}}}`)
	w.awaits(m).Should(BeEmpty())
	w.g.Eventually(func() float64 { return w.metric("drift_repairs_total") }).Should(BeEquivalentTo(1))
}
