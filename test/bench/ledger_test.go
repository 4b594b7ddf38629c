package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/playground/simulated"
)

const (
	// intoEach is the number of environments of a Pipeline that revisions are promoted into,
	// and finishedEach the number of finished promotions into each of them.
	intoEach, finishedEach = 5, 10
	// applicationsEach is the number of applications of a cluster.
	applicationsEach = 20
	// idle is how long the hub is watched without work.
	idle = 5 * time.Second
)

// TestLedger: a start with finished Promotions, compared with a start without them. While no hub
// runs, some applications of every cluster change. The hub is ready when their Pipelines show that,
// and every other Pipeline was reconciled.
//
// A start after every application has changed ends with the write of every status: that is mostly a
// measure of the API server, and has no budget.
func TestLedger(t *testing.T) {
	s := newScene(t, simulated.Options{Clusters: count(2, 20), Applications: applicationsEach})
	// Few Promotions are enough for the hub to list them in halves.
	names := s.lines(count(24, 2000))
	s.start(names, applicationsEach, "5.0.0").stop() // The first start writes whole statuses.
	allWithout := s.start(names, applicationsEach, "5.1.0")
	allWithout.stop()
	before := requests(s)
	without := s.start(names, 1, "5.2.0")
	least := without.cost()
	pause(idle)
	usual := requests(s) - before
	without.stop()

	n := s.finished(names)
	s.g.Eventually(func(g Gomega) {
		// From the API server's own cache, which receives what etcd has.
		all := &metav1.PartialObjectMetadataList{}
		all.SetGroupVersionKind(capstanv1.GroupVersion.WithKind(capstanv1.PromotionKind + "List"))
		g.Expect(admin.List(t.Context(), all, client.InNamespace(s.namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})).To(Succeed())
		g.Expect(len(all.Items)).To(Equal(n))
	}).WithTimeout(5 * time.Minute).WithPolling(2 * time.Second).Should(Succeed())
	// The first start with them writes the newest promotion of each environment into the statuses.
	s.start(names, applicationsEach, "5.3.0").stop()
	s.showsTheNewest(names)
	allWith := s.start(names, applicationsEach, "5.4.0")
	allWith.stop()
	before = requests(s)
	with := s.start(names, 1, "5.5.0")
	most := with.cost()
	pause(idle)
	made := requests(s) - before
	with.stop()

	report(fmt.Sprintf("%d finished Promotions in %d Pipelines, start: longer by", n, len(names)), (with.took - without.took).Seconds(), 10, "s")
	report("a finished Promotion, live heap and stacks", float64(most.Live-least.Live)/float64(n), kib, "B")
	report("a finished Promotion, resident", float64(most.Resident-least.Resident)/float64(n), kib, "B")
	report("requests for single Promotions and Secrets, at the start and while idle: more by", float64(made-usual), 0, "")
	fmt.Fprintf(os.Stderr, "| the start without them; with them | %.1f s; %.1f s | – | |\n", without.took.Seconds(), with.took.Seconds())
	fmt.Fprintf(os.Stderr, "| a start that writes %d statuses, without them; with them | %.1f s; %.1f s | – | |\n", len(names), allWithout.took.Seconds(), allWith.took.Seconds())
	s.g.Expect(usual).To(Equal(len(s.clusters)), "each cluster's Secret is read once")
	s.g.Expect(made).To(Equal(usual), "no request per finished Promotion")
}

// number returns that of a Pipeline, from its name.
func number(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "line-"))
	return n
}

// application returns that of a Pipeline. The Pipelines of each application are in all clusters.
func (s *scene) application(pipeline int) int { return pipeline / len(s.clusters) % applicationsEach }

// lines declares Pipelines of a first environment and intoEach others, all with one target in
// one cluster.
func (s *scene) lines(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("line-%d", i))
	}
	each(names, func(name string) {
		n := number(name)
		p := &pipelinesv1.Pipeline{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
			Spec: pipelinesv1.PipelineSpec{
				AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: fmt.Sprintf("app-%d", s.application(n))},
				Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
			},
		}
		for env := range intoEach + 1 {
			p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: fmt.Sprintf("env-%d", env), Targets: []pipelinesv1.Target{{
				Namespace:  simulated.Namespace,
				ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: s.clusters[n%len(s.clusters)].Name()},
			}}})
		}
		s.g.Expect(admin.Create(s.Context(), p)).To(Succeed())
	})
	return names
}

// start deploys a revision of the first applications of every cluster, starts a hub, and waits
// until it is ready.
func (s *scene) start(names []string, applications int, revision string) *started {
	s.Helper()
	var deployed []string
	for _, name := range names {
		if s.application(number(name)) < applications {
			deployed = append(deployed, name)
		}
	}
	for _, c := range s.clusters {
		for i := range applications {
			c.Deploy(i, revision)
		}
	}
	// Without webhooks: the hub reads their Secret every five seconds until it exists, and Secrets are counted.
	h := startHub(s, s.namespace, "--webhook-bind-address=0")
	s.until("the Pipelines show the revision", func(all map[string]*pipelinesv1.Pipeline) bool {
		for _, name := range deployed {
			p := all[name]
			if p == nil || len(p.Status.Environments) != intoEach+1 {
				return false
			}
			for _, env := range p.Status.Environments {
				if len(env.Targets) != 1 || env.Targets[0].Revision != revision || env.Targets[0].Stale {
					return false
				}
			}
		}
		return true
	})
	s.g.Eventually(func(g Gomega) {
		w := h.work()
		g.Expect(w.Reconciled).To(BeNumerically(">=", len(names)))
		g.Expect(w.Queued).To(BeZero())
	}).WithTimeout(patience).WithPolling(20 * time.Millisecond).Should(Succeed())
	return &started{h, time.Since(h.began)}
}

// showsTheNewest checks that the hub has listed the newest Promotion of every environment.
func (s *scene) showsTheNewest(names []string) {
	s.Helper()
	s.until("all Pipelines show their newest promotions", func(all map[string]*pipelinesv1.Pipeline) bool {
		for _, name := range names {
			for env := range intoEach {
				status := all[name].Status.Environments[fmt.Sprintf("env-%d", env+1)]
				if status == nil || status.Promotion == nil || status.LastPromotion < finishedEach {
					return false
				}
			}
		}
		return true
	})
}

// started is a hub that is ready, and how long that took.
type started struct {
	*hubProcess
	took time.Duration
}

// finished writes the finished Promotions of Pipelines into etcd, as the hub leaves them after an hour:
// through the API server, two requests for each would take most of the time of the test. It
// returns their number.
func (s *scene) finished(names []string) int {
	s.Helper()
	each(names, func(name string) {
		p := &pipelinesv1.Pipeline{}
		s.g.Expect(admin.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, p)).To(Succeed())
		var puts []put
		for env := range intoEach {
			for number := range int64(finishedEach) {
				o := succeeded(p, p.Spec.Environments[env].Name, p.Spec.Environments[env+1].Name, number+1)
				raw, err := json.Marshal(o)
				s.g.Expect(err).NotTo(HaveOccurred())
				puts = append(puts, put{Put: keyValue{Key: []byte("/registry/capstan.dev/promotions/" + o.Namespace + "/" + o.Name), Value: raw}})
			}
		}
		raw, err := json.Marshal(map[string]any{"success": puts})
		s.g.Expect(err).NotTo(HaveOccurred())
		request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, management.EtcdURL()+"/v3/kv/txn", bytes.NewReader(raw))
		s.g.Expect(err).NotTo(HaveOccurred())
		answer, err := http.DefaultClient.Do(request)
		s.g.Expect(err).NotTo(HaveOccurred())
		s.g.Expect(answer.Body.Close()).To(Succeed())
		s.g.Expect(answer.StatusCode).To(Equal(http.StatusOK))
	})
	return len(names) * intoEach * finishedEach
}

// put is one operation of a transaction of etcd's JSON API.
type put struct {
	Put keyValue `json:"requestPut"`
}

type keyValue struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// succeeded returns a promotion that succeeded some days ago.
func succeeded(p *pipelinesv1.Pipeline, from, into string, number int64) *capstanv1.Promotion {
	created := metav1.NewTime(time.Now().Add(-time.Duration(finishedEach+1-number) * 48 * time.Hour).Truncate(time.Second))
	ended := metav1.NewTime(created.Add(5 * time.Minute))
	revision := fmt.Sprintf("4.%d.0", number)
	message := fmt.Sprintf("every target of environment %q runs %s", into, revision)
	return &capstanv1.Promotion{
		TypeMeta: metav1.TypeMeta{APIVersion: capstanv1.GroupVersion.String(), Kind: capstanv1.PromotionKind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: promotions.Name(p.Name, p.UID, into, number), UID: uuid.NewUUID(), Generation: 1, CreationTimestamp: created,
			Labels: map[string]string{
				capstanv1.PipelineUIDLabel: string(p.UID), capstanv1.PipelineLabel: promotions.Slug(p.Name, promotions.MaxLabel), capstanv1.EnvironmentLabel: into,
			},
		},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: p.Name, UID: p.UID}, App: p.Spec.AppRef, Environment: into, Number: number, Revision: revision,
			Source:   capstanv1.PromotionSource{Environment: from, Sequence: number + 1},
			From:     &capstanv1.PromotionBase{Revisions: []string{fmt.Sprintf("4.%d.0", number-1)}, Sequence: number, Targets: []string{p.Spec.AppRef.Name + " in namespace apps of Cluster " + p.Namespace + "/" + into}},
			Strategy: p.Spec.Promotion.Strategy,
		},
		Status: capstanv1.PromotionStatus{
			Phase: capstanv1.PhaseSucceeded, Reason: "RolledOut", Message: message, ObservedGeneration: 1, StartTime: &created, FinishTime: &ended,
			Attempt: &capstanv1.Attempt{
				Number: 1, Holder: "capstan-hub-5d8c7f9b6c-x2x9z_" + string(uuid.NewUUID()),
				StartTime: metav1.NewMicroTime(created.Time), NextAttemptTime: metav1.NewMicroTime(created.Time),
			},
			Conditions: []metav1.Condition{{
				Type: capstanv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "RolledOut", Message: message, ObservedGeneration: 1, LastTransitionTime: ended,
			}},
		},
	}
}

// ofSingle matches the count of requests for single Promotions and Secrets.
var ofSingle = regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*resource="(?:promotions|secrets)"[^}]*verb="(?:GET|PUT|PATCH|DELETE|POST)"[^}]*\} (\S+)$`)

// requests returns how many requests for single Promotions and Secrets the API server has
// answered.
func requests(s *scene) int { return s.answered(ofSingle) }

// answered returns how many requests the API server has answered, of those whose metrics match.
func (s *scene) answered(which *regexp.Regexp) int {
	s.Helper()
	config := management.Config()
	transport, err := rest.HTTPClientFor(config)
	s.g.Expect(err).NotTo(HaveOccurred())
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, strings.TrimSuffix(config.Host, "/")+"/metrics", nil)
	s.g.Expect(err).NotTo(HaveOccurred())
	answer, err := transport.Do(request)
	s.g.Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	s.g.Expect(answer.StatusCode).To(Equal(http.StatusOK))
	var body bytes.Buffer
	_, err = body.ReadFrom(answer.Body)
	s.g.Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, m := range which.FindAllStringSubmatch(body.String(), -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		s.g.Expect(err).NotTo(HaveOccurred())
		sum += n
	}
	return int(sum)
}
