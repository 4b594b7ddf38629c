package conformance

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/approval"
)

// scheme is a way to sign, and a replica that takes it.
type scheme struct {
	name string
	hook func() string
	sign func(key []byte, method, path string, body []byte) http.Header
}

func version2(key []byte, method, path string, body []byte) http.Header {
	return approval.Sign(key, method, path, time.Now(), body)
}

// weaves signs as weave does: the body of a promotion, nothing of an approval.
func weaves(key []byte, _, path string, body []byte) http.Header {
	mac := hmac.New(sha256.New, key)
	if strings.HasPrefix(path, "/promotion/") {
		mac.Write(body)
	}
	return http.Header{"X-Signature": {"sha256=" + hex.EncodeToString(mac.Sum(nil))}}
}

var schemes = []scheme{
	{"v2", func() string { return hookLeader }, version2},
	{"v2-standby", func() string { return hookStandby }, version2},
	{"legacy", func() string { return hookStandby }, weaves},
}

// forEachScheme runs a row under each way to sign, with a name that the objects of
// the run may have.
func forEachScheme(t *testing.T, row string, run func(t *testing.T, name string, s scheme, from *caller)) {
	for _, s := range schemes {
		t.Run(s.name, func(t *testing.T) { run(t, row+"-"+s.name, s, newCaller(s.hook())) })
	}
}

// caller calls the hook from a loopback address of its own, so that the rate limit of
// one test is not another's.
type caller struct {
	http *http.Client
	url  string
}

var callers byte

func newCaller(hook string) *caller {
	callers++
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 9, callers)}}
	return &caller{
		http: &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}},
		url:  "http://" + hook,
	}
}

// answer is what the hook said.
type answer struct {
	Code           int
	Body, Location string
	Headers        http.Header
}

func (c *caller) call(t *testing.T, method, path string, headers http.Header, body []byte) answer {
	t.Helper()
	a, err := c.try(t.Context(), method, path, headers, body)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return a
}

func (c *caller) try(ctx context.Context, method, path string, headers http.Header, body []byte) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(string(body)))
	if err != nil {
		return answer{}, err
	}
	for key, values := range headers {
		request.Header[key] = values
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(said), response.Header.Get("Location"), response.Header}, err
}

// key of every Pipeline's Secret in these tests.
var key = []byte("c4n4ry-hm4c-key-0f-the-h00k")

const (
	failedPromoting = "error promoting application, please consult the promotion server's logs"
	failedApproving = "failed approving promotion"
)

// fluxEvent is what notification-controller posts of a release.
func fluxEvent(app, revision string, edit ...func(map[string]any)) []byte {
	involved := map[string]any{"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "namespace": "shop", "name": app}
	e := map[string]any{
		"involvedObject": involved, "severity": "info", "timestamp": "2026-01-01T00:00:00Z", "message": "Helm upgrade succeeded",
		"reason": "UpgradeSucceeded", "reportingController": "helm-controller",
	}
	if revision != "" {
		e["metadata"] = map[string]any{"revision": revision}
	}
	for _, f := range edit {
		f(involved)
	}
	raw, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return raw
}

// hooked is a Pipeline with a key: env-0 in the management cluster runs 1.0.0, and so
// does env-1 in the other.
func hooked(t *testing.T, name string, edit func(*pipelinesv1.Pipeline)) *pipelinesv1.Pipeline {
	t.Helper()
	release(t, c, name, "1.0.0", "", true)
	release(t, remote, name, "1.0.0", "", true)
	capiCluster(t, name, kubeconfig(t))
	secret(t, name+"-hmac", approval.SecretKey, key)
	p := newPipeline(name, name, target("", ""), target("Cluster", name))
	p.Spec.Promotion = &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{
		Notification: &pipelinesv1.NotificationPromotion{}, SecretRef: &pipelinesv1.LocalObjectReference{Name: name + "-hmac"},
	}}
	if edit != nil {
		edit(p)
	}
	create(t, c, p)
	return p
}

// runsEverywhere waits until both environments were seen at 1.0.0.
func runsEverywhere(t *testing.T, p *pipelinesv1.Pipeline) {
	t.Helper()
	for _, env := range []string{"env-0", "env-1"} {
		expectTarget(t, p, env, func(g Gomega, s pipelinesv1.TargetStatus) { g.Expect(s.Revision).To(Equal("1.0.0")) })
	}
}

func promotionsOf(t *testing.T, p *pipelinesv1.Pipeline) []capstanv1.Promotion {
	t.Helper()
	var list capstanv1.PromotionList
	NewWithT(t).Expect(c.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{capstanv1.PipelineUIDLabel: string(p.UID)})).To(Succeed())
	return list.Items
}

// awaitPhase waits until the Pipeline's one promotion is in a phase.
func awaitPhase(t *testing.T, p *pipelinesv1.Pipeline, phase capstanv1.PromotionPhase) []capstanv1.Promotion {
	t.Helper()
	NewWithT(t).Eventually(func() []capstanv1.Promotion { return promotionsOf(t, p) }).WithTimeout(patience).
		Should(ConsistOf(HaveField("Status.Phase", phase)))
	return promotionsOf(t, p)
}

func waitingApproval(t *testing.T, p *pipelinesv1.Pipeline, env string) string {
	t.Helper()
	NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
	return p.Status.Environments[env].WaitingApproval.Revision
}
