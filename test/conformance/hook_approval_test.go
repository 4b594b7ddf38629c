package conformance

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/approval"
)

// C23, N6: an approval is recorded once, and a captured call cannot be used again.
func TestApproval(t *testing.T) {
	forEachScheme(t, "c23", func(t *testing.T, name string, s scheme, from *caller) {
		g := NewWithT(t)
		p := hooked(t, name, func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
		runsEverywhere(t, p)
		path := approval.ApprovalPath(namespace, p.Name, "env-1", "1.1.0")
		post := func(path string, headers http.Header) answer {
			return from.call(t, http.MethodPost, path, headers, nil)
		}
		signed := func(path string) http.Header { return s.sign(key, http.MethodPost, path, nil) }

		g.Expect(post(path, signed(path))).To(And(HaveField("Code", 422), HaveField("Body", HavePrefix(failedApproving))), "nothing waits yet")
		release(t, c, name, "1.1.0", "", true)
		g.Eventually(func() string { return waitingApproval(t, p, "env-1") }).WithTimeout(patience).Should(Equal("1.1.0"))

		g.Expect(from.call(t, http.MethodGet, path, signed(path), nil).Code).To(Equal(405))
		g.Expect(post(strings.TrimSuffix(path, "/1.1.0"), signed(path)).Code).To(Equal(404))
		elsewhere := approval.ApprovalPath(namespace, "nowhere", "env-1", "1.1.0")
		g.Expect(post(elsewhere, signed(elsewhere)).Code).To(Equal(404))
		g.Expect(post(path, s.sign([]byte("another"), http.MethodPost, path, nil)).Code).To(Equal(401))
		for _, wrong := range []string{approval.ApprovalPath(namespace, p.Name, "env-1", "1.0.0"), approval.ApprovalPath(namespace, p.Name, "env-0", "1.1.0")} {
			g.Expect(post(wrong, signed(wrong))).To(And(HaveField("Code", 422), HaveField("Body", HavePrefix(failedApproving))))
		}
		unknown := approval.ApprovalPath(namespace, p.Name, "env-9", "1.1.0")
		g.Expect(post(unknown, signed(unknown)).Code).To(Equal(422))
		g.Expect(promotionsOf(t, p)[0].Spec.Approval).To(BeNil())

		// N6: signed for another path, or too long ago, or too far ahead.
		if s.name != "legacy" {
			g.Expect(post(path, signed(unknown)).Code).To(Equal(401))
			for _, at := range []time.Duration{-6 * time.Minute, 6 * time.Minute} {
				g.Expect(post(path, approval.Sign(key, http.MethodPost, path, time.Now().Add(at), nil)).Code).To(Equal(401), at.String())
			}
			g.Expect(post(path, approval.Sign(key, http.MethodPut, path, time.Now(), nil)).Code).To(Equal(401), "another method")
			g.Expect(post(path, approval.Sign(key, http.MethodPost, path, time.Now(), []byte("x"))).Code).To(Equal(401), "another body")
			g.Expect(promotionsOf(t, p)[0].Spec.Approval).To(BeNil())
		}

		headers := signed(path)
		got := post(path, headers)
		g.Expect(got.Code).To(Equal(204), got.Body)
		all := awaitPhase(t, p, capstanv1.PhaseAwaitingRollout)
		g.Expect(all[0].Spec.Approval).To(Equal(&capstanv1.Approval{By: "secret:" + namespace + "/" + name + "-hmac", Method: capstanv1.ApprovalByHTTP}))
		g.Eventually(func() string { return waitingApproval(t, p, "env-1") }).WithTimeout(patience).Should(BeEmpty())

		// N6: the very same call again changes nothing: the caller may have lost the answer.
		g.Expect(post(path, headers).Code).To(Equal(204))
		g.Expect(promotionsOf(t, p)).To(HaveLen(1))
		g.Expect(promotionsOf(t, p)[0].Status.Attempt.Number).To(BeEquivalentTo(1), "carried out once")
	})
}

// N6: within its five minutes, a captured approval does not let the same revision
// through again when it comes back after another.
func TestReplayedApprovalOfTheSameRevision(t *testing.T) {
	g := NewWithT(t)
	p := hooked(t, "n6", func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
	runsEverywhere(t, p)
	from, path := newCaller(hookLeader), approval.ApprovalPath(namespace, p.Name, "env-1", "1.1.0")
	captured := version2(key, http.MethodPost, path, nil)
	arrives := func(revision string) {
		release(t, c, "n6", revision, "", true)
		g.Eventually(func() string { return waitingApproval(t, p, "env-1") }).WithTimeout(patience).Should(Equal(revision))
	}
	arrives("1.1.0")
	g.Expect(from.call(t, http.MethodPost, path, captured, nil).Code).To(Equal(204))
	arrives("1.2.0")
	arrives("1.1.0")
	for _, hook := range []string{hookLeader, hookStandby} {
		got := newCaller(hook).call(t, http.MethodPost, path, captured, nil)
		g.Expect(got).To(And(HaveField("Code", 422), HaveField("Body", ContainSubstring("sign each approval again"))))
	}
	g.Expect(waitingApproval(t, p, "env-1")).To(Equal("1.1.0"), "it still waits")
	// Another second, another signature.
	fresh := approval.Sign(key, http.MethodPost, path, time.Now().Add(2*time.Second), nil)
	g.Expect(from.call(t, http.MethodPost, path, fresh, nil).Code).To(Equal(204))
}

// N10: both replicas are called at once; one approval is recorded, one act follows. The other
// calls repeat the approval of the same caller.
func TestApprovalOnTwoReplicas(t *testing.T) {
	g := NewWithT(t)
	p := hooked(t, "n10", func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
	runsEverywhere(t, p)
	release(t, c, "n10", "1.1.0", "", true)
	g.Eventually(func() string { return waitingApproval(t, p, "env-1") }).WithTimeout(patience).Should(Equal("1.1.0"))
	path := approval.ApprovalPath(namespace, p.Name, "env-1", "1.1.0")
	var mu sync.Mutex
	codes := map[int]int{}
	var group sync.WaitGroup
	for i := range 8 {
		from := newCaller([]string{hookLeader, hookStandby}[i%2])
		headers := approval.Sign(key, http.MethodPost, path, time.Now().Add(time.Duration(i)*time.Second), nil)
		group.Go(func() {
			got, err := from.try(t.Context(), http.MethodPost, path, headers, nil)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			codes[got.Code]++
		})
	}
	group.Wait()
	g.Expect(codes).To(Equal(map[int]int{204: 8}))
	all := awaitPhase(t, p, capstanv1.PhaseAwaitingRollout)
	g.Expect(all[0].Status.Attempt.Number).To(BeEquivalentTo(1))
}

// Environments and revisions of any characters can be approved.
func TestOddNamesAreApproved(t *testing.T) {
	g := NewWithT(t)
	const env, revision = "Prod EU/überall", "1.1.0-rc.1+build.7"
	p := hooked(t, "odd-approval", func(p *pipelinesv1.Pipeline) {
		p.Spec.Promotion.Manual = true
		p.Spec.Environments[1].Name = env
	})
	expectTarget(t, p, env, func(g Gomega, s pipelinesv1.TargetStatus) { g.Expect(s.Revision).To(Equal("1.0.0")) })
	release(t, c, "odd-approval", revision, "", true)
	g.Eventually(func() string { return waitingApproval(t, p, env) }).WithTimeout(patience).Should(Equal(revision))
	path := approval.ApprovalPath(namespace, p.Name, env, revision)
	got := newCaller(hookLeader).call(t, http.MethodPost, path, version2(key, http.MethodPost, path, nil), nil)
	g.Expect(got.Code).To(Equal(204), got.Body)
}
