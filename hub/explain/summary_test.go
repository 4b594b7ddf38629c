package explain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

func written(t *testing.T, f *Fleet, all bool) string {
	t.Helper()
	var b strings.Builder
	NewWithT(t).Expect(f.Write(&b, all)).To(Succeed())
	return b.String()
}

// forbidden returns clusters whose Secrets the hub may not read, and a ready one.
func forbidden(n int) []capstanv1.ClusterConnection {
	all := []capstanv1.ClusterConnection{connection("Cluster", "ok", capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionReady})}
	for i := range n {
		name := fmt.Sprintf("c%02d", i)
		all = append(all, connection("Cluster", name, capstanv1.ClusterConnectionStatus{
			State: capstanv1.ConnectionAuthFailed, Reason: "SecretForbidden", LastTransitionTime: before(time.Duration(i+1) * time.Minute),
			Message: "the hub may not read Secret fleet/" + name + "-kubeconfig: apply config/rbac/cluster-secrets in the namespace",
		}))
	}
	return all
}

// Many clusters with one cause are one row.
func TestSummaryOfOneCause(t *testing.T) {
	g := NewWithT(t)
	waiting, failed := shop(), shop()
	waiting.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
	failed.Pipeline.Name, failed.Pipeline.UID = "billing", "other"
	failed.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "RolloutDeadline", Message: "not every target ran 1.1.0 in 10m"})
	failed.Promotions[0].Spec.Pipeline = capstanv1.PipelineReference{Name: "billing", UID: "other"}
	f := Fleet{
		Now: now, Connections: forbidden(60), Promotions: append(waiting.Promotions, failed.Promotions...),
		Pipelines: []pipelinesv1.Pipeline{*waiting.Pipeline, *failed.Pipeline},
		Backends: []eventingv1.EventingBackend{{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "bus"}, Status: eventingv1.EventingBackendStatus{Conditions: []eventingv1.Condition{{
			Type: string(eventingv1.ReadyCondition), Status: metav1.ConditionFalse, Reason: "Unreachable", Message: "dial tcp 10.0.0.7:4222: connection refused", LastTransitionTime: *before(time.Hour),
		}}}}},
	}
	g.Expect(written(t, &f, false)).To(Equal(`60 of 61 clusters need you · 1 approval · 1 failed promotion · 1 backend not ready

Clusters: 60 AuthFailed, 1 Ready
  60 clusters: AuthFailed (SecretForbidden), the oldest for 60m: fleet/c00, fleet/c01, fleet/c02 and 57 more
    the hub may not read Secret fleet/c59-kubeconfig: apply config/rbac/cluster-secrets in the namespace
    next: kubectl -n fleet describe clusterconnections.capstan.dev c59

Pipelines: 2 (2 waiting)
  1 environment: promotion failed (RolloutDeadline) for 2m: apps/billing staging
    not every target ran 1.1.0 in 10m
    next: capstan explain pipeline apps/billing
  1 environment: awaiting approval for 5m: apps/shop staging
    next: capstan explain pipeline apps/shop

Backends: 1 (1 not ready)
  1 backend: not ready (Unreachable) for 60m: apps/bus
    dial tcp 10.0.0.7:4222: connection refused
    next: capstan explain eventingbackend apps/bus

All rows: capstan status --all
`))
	all := written(t, &f, true)
	g.Expect(strings.Count(all, "is AuthFailed (SecretForbidden): the hub may not read Secret")).To(Equal(60))
	g.Expect(all).To(HaveSuffix("\n\nEventingBackend apps/bus is not ready: Unreachable: dial tcp 10.0.0.7:4222:\n  connection refused\n"))

	text, err := json.Marshal(f.Summary())
	g.Expect(err).NotTo(HaveOccurred())
	var s map[string]map[string]any
	_ = json.Unmarshal(text, &s) // The verdict is no map.
	g.Expect(s["clusters"]).To(And(HaveKeyWithValue("total", 61.0), HaveKeyWithValue("needAction", 60.0), HaveKeyWithValue("states", HaveKeyWithValue("AuthFailed", 60.0))))
	g.Expect(s["clusters"]["causes"]).To(ConsistOf(And(
		HaveKeyWithValue("kind", "AuthFailed"), HaveKeyWithValue("reason", "SecretForbidden"), HaveKeyWithValue("count", 60.0), HaveKeyWithValue("objects", HaveLen(60)),
		HaveKeyWithValue("oldest", "2026-03-01T11:00:00Z"), HaveKeyWithValue("next", "kubectl -n fleet describe clusterconnections.capstan.dev c59"))))
	g.Expect(s["pipelines"]).To(And(HaveKeyWithValue("approvals", 1.0), HaveKeyWithValue("failed", 1.0), HaveKeyWithValue("waiting", 2.0)))
	g.Expect(s["backends"]).To(HaveKeyWithValue("notReady", 1.0))
}

// hostile texts are as long as Kubernetes permits, or contain what a terminal would interpret.
func hostile(i int) string {
	return []string{
		strings.Repeat("x", 253), "\x1b[2J\x1b[31mred", "<script>alert(1)</script>", "\u202eabc\u202c مرحبا",
		strings.Repeat("no-space-", 100), "two\nlines\r\n\tand a tab", strings.Repeat("字", 300),
	}[i%7]
}

// largest is a fleet of 1,000 clusters and 300 Pipelines with 20 environments each, with as many causes as it can have.
func largest() *Fleet {
	f := &Fleet{Now: now}
	states := []capstanv1.ConnectionState{
		capstanv1.ConnectionAuthFailed, capstanv1.ConnectionUnreachable, capstanv1.ConnectionDegraded, capstanv1.ConnectionConnecting,
		capstanv1.ConnectionReady, capstanv1.ConnectionRemoved, capstanv1.ConnectionUnused, "",
	}
	const clusters, pipelines, environments = 1000, 300, 20
	for i := range clusters {
		f.Connections = append(f.Connections, connection("Cluster", fmt.Sprintf("%s-%d", strings.Repeat("c", 240), i), capstanv1.ClusterConnectionStatus{
			State: states[i%len(states)], Reason: fmt.Sprintf("Reason%c", 'A'+i%23), Message: hostile(i), LastTransitionTime: before(time.Duration(i) * time.Minute),
		}))
	}
	phases := []capstanv1.PromotionPhase{
		"", capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge,
		capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying, capstanv1.PhaseSucceeded, capstanv1.PhaseFailed, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded,
	}
	for i := range pipelines {
		p := shop().Pipeline
		p.Name, p.UID = fmt.Sprintf("%s-%d", strings.Repeat("p", 240), i), "uid"
		p.Spec.Suspend = i%9 == 0
		p.Spec.Environments, p.Status.Environments = nil, map[string]*pipelinesv1.EnvironmentStatus{}
		for e := range environments {
			env := pipelinesv1.Environment{Name: fmt.Sprintf("%s-%d", strings.Repeat("e", 200), e)}
			at := i*environments + e
			env.Targets = []pipelinesv1.Target{{Namespace: "shop", ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "fleet", Name: f.Connections[at%clusters].Name}}}
			p.Spec.Environments = append(p.Spec.Environments, env)
			p.Status.Environments[env.Name] = &pipelinesv1.EnvironmentStatus{Targets: []pipelinesv1.TargetStatus{{Ready: at%3 == 0, Revision: hostile(at), Reason: fmt.Sprintf("R%c", 'A'+at%19), Stale: at%5 == 0}}}
			f.Promotions = append(f.Promotions, capstanv1.Promotion{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: fmt.Sprintf("p-%d", at)},
				Spec:       capstanv1.PromotionSpec{Pipeline: capstanv1.PipelineReference{Name: p.Name, UID: "uid"}, Environment: env.Name, Number: 1, Revision: hostile(at + 1)},
				Status: capstanv1.PromotionStatus{
					Phase: phases[at%len(phases)], Reason: fmt.Sprintf("Reason%c", 'A'+at%17), Message: hostile(at), StartTime: before(time.Duration(at) * time.Second), FinishTime: before(time.Second),
				},
			})
		}
		f.Pipelines = append(f.Pipelines, *p)
	}
	for i := range 50 {
		f.Backends = append(f.Backends, eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: fmt.Sprintf("%s-%d", strings.Repeat("b", 240), i)}, Status: eventingv1.EventingBackendStatus{
			Conditions: []eventingv1.Condition{{Type: string(eventingv1.ReadyCondition), Status: metav1.ConditionFalse, Reason: fmt.Sprintf("Reason%c", 'A'+i%11), Message: hostile(i)}},
		}})
	}
	for range 9 {
		f.Unread = append(f.Unread, hostile(0)+" is forbidden")
	}
	return f
}

func TestSummaryOfTheLargestFleet(t *testing.T) {
	g := NewWithT(t)
	f := largest()
	text := written(t, f, false)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	g.Expect(len(lines)).To(And(BeNumerically("<=", MaxLines), BeNumerically(">", MaxLines/2)), text)
	for _, line := range lines {
		g.Expect(utf8.RuneCountInString(line)).To(BeNumerically("<=", maxColumns), line)
		g.Expect(line).NotTo(MatchRegexp(`[\x00-\x1f\x{202e}]`), "a terminal interprets it")
		if command, ok := strings.CutPrefix(line, "    next: "); ok {
			g.Expect(command).NotTo(ContainSubstring("…"), "it cannot be copied")
		}
	}
	s := f.Summary()
	g.Expect(s.Clusters.Total).To(Equal(1000))
	g.Expect(s.Clusters.NeedAction).To(Equal(375))
	g.Expect(text).To(HavePrefix("375 of 1000 clusters need you · "))
	count := 0
	for _, c := range s.Clusters.Causes {
		count += c.Count
	}
	g.Expect(count).To(Equal(750), "all but those that are Ready or Unused")
	g.Expect(text).To(MatchRegexp(`\n  and \d+ more causes with \d+ environments\n`))
}

// Without objects, or without rights, the text does not say that everything is well.
func TestSummaryOfNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		f    Fleet
		want string
	}{
		{"no objects", Fleet{}, "No clusters · no promotion needs you\n\nClusters: none is used by a Pipeline\n\nPipelines: 0 (0 waiting)\n"},
		{"no rights", Fleet{ClustersUnread: true, Unread: []string{"the clusters: forbidden"}}, `Not all clusters are visible to you · no promotion needs you
Not shown: the clusters: forbidden

Clusters: not visible to you

Pipelines: 0 (0 waiting)
`},
		{"one namespace", Fleet{Namespace: "apps"}, "No clusters · no promotion needs you\n\nClusters: none in namespace apps, and none that its Pipelines name\n\nPipelines: 0 (0 waiting)\n"},
	} {
		t.Run(c.name, func(t *testing.T) { NewWithT(t).Expect(written(t, &c.f, false)).To(Equal(c.want)) })
	}
}

// What is not ready is never reassuring.
func TestVerdict(t *testing.T) {
	g := NewWithT(t)
	ready := forbidden(0)
	g.Expect((&Fleet{Now: now, Connections: ready, Pipelines: []pipelinesv1.Pipeline{*shop().Pipeline}}).Summary().Verdict).To(Equal("All of 1 cluster connected · no promotion needs you"))
	broken := shop()
	broken.target("prod", 0).Ready = false
	invalid := shop()
	invalid.Pipeline.Spec.Suspend = true
	g.Expect((&Fleet{Now: now, Connections: ready, Pipelines: []pipelinesv1.Pipeline{*broken.Pipeline}}).Summary().Verdict).To(Equal("1 environment not ready"))
	g.Expect((&Fleet{Now: now, Connections: append(ready, connection("Cluster", "new", capstanv1.ClusterConnectionStatus{}))}).Summary().Verdict).To(Equal("1 of 2 clusters connected · no promotion needs you"))
	s := (&Fleet{Now: now, Connections: ready, Pipelines: []pipelinesv1.Pipeline{*invalid.Pipeline}}).Summary()
	g.Expect(s.Pipelines.Causes).To(HaveLen(1))
	g.Expect(s.Pipelines.Causes[0].Kind).To(Equal(string(WaitSuspended)))
}

func TestWaits(t *testing.T) {
	for _, c := range []struct {
		name         string
		edit         func(*Facts)
		kind         WaitKind
		reason, text string
	}{
		{"stalled", func(f *Facts) {
			p := f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
			p.Status.Conditions = []metav1.Condition{{Type: capstanv1.StalledCondition, Status: metav1.ConditionTrue, Message: "older than 30m"}}
		}, WaitStalled, "AwaitingRollout", "stalled (AwaitingRollout)"},
		{"gate", func(f *Facts) {
			f.Pipeline.Spec.Environments[1].Gates = &pipelinesv1.Gates{Soak: &pipelinesv1.Soak{}}
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates})
		}, WaitGate, "soak", "gate soak is closed"},
		{"progress", func(f *Facts) { f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseVerifying}) }, WaitProgress, "Verifying", "in progress (Verifying)"},
		{"rejected", func(f *Facts) { f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseRejected}) }, WaitRejected, "", "pull request closed unmerged"},
		{"not ready", func(f *Facts) {
			*f.target("prod", 1) = pipelinesv1.TargetStatus{Revision: "1.0.0", Reason: "InstallFailed", Message: "timeout"}
		}, WaitTarget, "InstallFailed", "application not ready (InstallFailed)"},
		{"unreadable", func(f *Facts) {
			*f.target("prod", 1) = pipelinesv1.TargetStatus{Revision: "1.0.0", Stale: true}
			f.Connections = []capstanv1.ClusterConnection{connection("Cluster", "us", capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionUnreachable})}
		}, WaitUnreadable, "cluster Unreachable", "target cannot be read (cluster Unreachable)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			f := shop()
			c.edit(f)
			s := (&Fleet{Now: now, Pipelines: []pipelinesv1.Pipeline{*f.Pipeline}, Promotions: f.Promotions, Connections: f.Connections}).Summary()
			g.Expect(s.Pipelines.Causes).To(HaveLen(1))
			g.Expect(WaitKind(s.Pipelines.Causes[0].Kind)).To(Equal(c.kind))
			g.Expect(s.Pipelines.Causes[0].Reason).To(Equal(c.reason))
			g.Expect(s.Pipelines.Causes[0].text).To(Equal(c.text))
		})
	}
	NewWithT(t).Expect(waitText).To(HaveLen(len(waitSeverity)))
}

// A fleet does not wait for targets that its quorum leaves out, unless too many are.
func TestFleetWaits(t *testing.T) {
	broken := pipelinesv1.TargetStatus{Revision: "1.0.0", Reason: "InstallFailed"}
	for name, c := range map[string]struct {
		targets []pipelinesv1.TargetStatus
		message string
		kind    WaitKind // empty if it does not wait
		reason  string
	}{
		"one is lost":                     {append(running(4, "1.0.0"), left(1, pipelinesv1.TargetLost)...), "lost: A", "", ""},
		"one joins":                       {append(running(4, "1.0.0"), left(1, pipelinesv1.TargetJoining)...), "joining: A", "", ""},
		"no targets":                      {nil, "", "", ""},
		"two are lost, and one may be":    {append(running(3, "1.0.0"), left(2, pipelinesv1.TargetLost)...), "2 of 5 targets are lost", WaitUnreadable, "Lost"},
		"three of five join":              {append(running(2, "1.0.0"), left(3, pipelinesv1.TargetJoining)...), "2 targets run 1.0.0", WaitTarget, "Joining"},
		"one is lost, another is broken":  {append(append(running(3, "1.0.0"), left(1, pipelinesv1.TargetLost)...), broken), "lost: A", WaitTarget, "InstallFailed"},
		"two are lost, another is broken": {append(append(running(2, "1.0.0"), left(2, pipelinesv1.TargetLost)...), broken), "2 of 5 targets are lost", WaitUnreadable, "Lost"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := shop()
			f.fleet("prod", c.message, c.targets...)
			s := (&Fleet{Now: now, Pipelines: []pipelinesv1.Pipeline{*f.Pipeline}}).Summary()
			if c.kind == "" {
				g.Expect(s.Pipelines.Waiting).To(BeZero())
				g.Expect(s.Pipelines.Causes).To(BeEmpty())
				return
			}
			g.Expect(s.Pipelines.Waiting).To(Equal(1))
			g.Expect(s.Pipelines.Causes).To(HaveLen(1))
			cause := s.Pipelines.Causes[0]
			g.Expect(WaitKind(cause.Kind)).To(Equal(c.kind))
			g.Expect(cause.Reason).To(Equal(c.reason))
			if cause.Reason != broken.Reason {
				g.Expect(cause.Message).To(Equal(c.message))
				g.Expect(cause.Oldest).To(HaveValue(Equal(now.Add(-time.Hour))))
			}
		})
	}
}
