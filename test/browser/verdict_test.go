package browser

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// shownWithin is the budget from the change of an object to the change of the verdict.
const shownWithin = 2 * time.Second * slower

// clickAgain is when a link is clicked once more that has led nowhere: an update of the page may replace it between the
// press and the release of the button.
const clickAgain = 5 * time.Second

// shortToken is the shortest lifetime of a token that an API server gives.
const shortToken = 10 * time.Minute

// trouble is something that breaks.
type trouble struct {
	// make breaks it. It is visible once written returns true.
	make    func()
	written func() bool
	// verdict is what the first line says of it, and square the cluster that it is a state of; empty if it is of none.
	verdict, square string
	// follow are the links to click from the first page, at most two.
	follow []string
	// reason and remedy are on the page that they lead to.
	reason, remedy string
	// mend repairs it.
	mend func()
}

// What breaks changes the verdict and the map of an open page within the budget, and at most two clicks lead to the reason
// and the remedy.
func TestWhatBreaksIsSeen(t *testing.T) {
	onAWS(t)
	ctx := t.Context()
	admin := world.admin
	b := newTab(t)
	b.signIn("/")
	connection := func(name string) *capstanv1.ClusterConnection {
		c := &capstanv1.ClusterConnection{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: fleetNamespace, Name: "cluster." + name}, c); err != nil {
			return &capstanv1.ClusterConnection{}
		}
		return c
	}
	environment := func(app, name string) *pipelinesv1.EnvironmentStatus {
		p := &pipelinesv1.Pipeline{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: appsNamespace, Name: app}, p); err != nil || p.Status.Environments[name] == nil {
			return &pipelinesv1.EnvironmentStatus{}
		}
		return p.Status.Environments[name]
	}
	in := func(phase capstanv1.PromotionPhase, app, name string) bool {
		p := environment(app, name).Promotion
		return p != nil && p.Phase == string(phase)
	}
	runs := func(app, name, revision string) func() bool {
		return func() bool {
			a := environment(app, name).Agreed
			return a != nil && a.Revision == revision
		}
	}
	square := func(name string) string { return "square/Cluster/fleet/" + name }
	pipeline(t, "watched", "dev", "staging")
	b.Eventually(runs("watched", "staging", "1.0.0"), patience).Should(BeTrue())

	for _, tc := range []struct {
		name string
		of   func(t *testing.T) trouble
	}{
		{"connection", func(*testing.T) trouble {
			return trouble{
				make:    func() { world.proxies["staging"].Set(controlplane.Refuse) },
				written: func() bool { return connection("staging").Status.State == capstanv1.ConnectionUnreachable },
				verdict: `\d+ of \d+ clusters needs? you`, square: square("staging"), follow: []string{`[id="square/Cluster/fleet/staging"] a`},
				reason: "Unreachable", remedy: "kubectl describe clusterconnection -n fleet cluster.staging",
				mend: func() { world.proxies["staging"].Set(controlplane.Pass) },
			}
		}},
		{"application", func(*testing.T) trouble {
			return trouble{
				make: func() {
					b.Expect(release("watched", "staging").Fail(ctx, "1.0.0", errors.New("the pod does not start"))).To(Succeed())
				},
				written: func() bool { s := environment("watched", "staging"); return len(s.Targets) > 0 && !s.Targets[0].Ready },
				verdict: `\d+ of \d+ clusters needs? you`, square: square("staging"), follow: []string{`[id="square/Cluster/fleet/staging"] a`},
				reason: "the pod does not start", remedy: "capstan status -n apps",
				mend: func() { b.Expect(release("watched", "staging").Deploy(ctx, "1.0.0")).To(Succeed()) },
			}
		}},
		{"node group", func(t *testing.T) trouble {
			group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
				"clusterName": "dev", "replicas": int64(2), "selector": map[string]any{"matchLabels": map[string]any{"group": "extra"}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"group": "extra"}},
					"spec": map[string]any{
						"clusterName": "dev", "bootstrap": map[string]any{"dataSecretName": "none"},
						"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachineTemplate", "name": "extra"},
					},
				},
			}}}
			group.SetAPIVersion("cluster.x-k8s.io/v1beta2")
			group.SetKind("MachineDeployment")
			group.SetNamespace(fleetNamespace)
			group.SetName("extra")
			made := false
			return trouble{
				make:    func() { b.Expect(admin.Create(ctx, group)).To(Succeed()); made = true },
				written: func() bool { return made },
				verdict: `\d+ of \d+ clusters needs? you`, square: square("dev"), follow: []string{`[id="square/Cluster/fleet/dev"] a`},
				reason: "0 of 2 ready", remedy: "kubectl describe machinedeployment -n fleet extra",
				mend: func() { b.Expect(client.IgnoreNotFound(admin.Delete(ctx, group))).To(Succeed()) },
			}
		}},
		{"instance", func(t *testing.T) trouble {
			machine := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"instanceType": "m5.large", "instanceID": "i-0aaaaaaaaaaaaaaaa", "providerID": "aws:///us-east-1a/i-0aaaaaaaaaaaaaaaa"}}}
			machine.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
			machine.SetKind("AWSMachine")
			machine.SetNamespace(fleetNamespace)
			machine.SetName("spot")
			machine.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "staging"})
			b.Expect(admin.Create(ctx, machine)).To(Succeed())
			return trouble{
				make: func() {
					notice := fmt.Sprintf(`{"version":"0","id":"v-%d","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","account":%q,"region":%q,"time":%q,"resources":[],"detail":{"instance-id":"i-0aaaaaaaaaaaaaaaa","instance-action":"terminate"}}`,
						notices.Add(1), account, region, time.Now().UTC().Format(time.RFC3339))
					b.Expect(world.sqs.Put(region, queueName, notice)).To(BeNil())
				},
				written: func() bool {
					return admin.Get(ctx, client.ObjectKeyFromObject(machine), machine) == nil && machine.GetLabels()["ec2-instance-state"] != ""
				},
				verdict: `\d+ of \d+ clusters needs? you`, square: square("staging"), follow: []string{`[id="square/Cluster/fleet/staging"] a`},
				reason: "spot-interruption-terminate", remedy: "kubectl describe awsmachine -n fleet spot",
				mend: func() { b.Expect(client.IgnoreNotFound(admin.Delete(ctx, machine))).To(Succeed()) },
			}
		}},
		{"credential", func(t *testing.T) trouble {
			// A token of ten minutes, which nobody renews.
			short := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: "short"}}
			temporary(t, short)
			temporary(t, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "short"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: fleetNamespace, Name: "short"}},
			})
			request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: sdk.Int64(int64(shortToken.Seconds()))}}
			b.Expect(admin.SubResource("token").Create(ctx, short, request)).To(Succeed())
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: "staging-kubeconfig"}}
			b.Expect(admin.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
			before := secret.Data["value"]
			config, err := clientcmd.Load(before)
			b.Expect(err).NotTo(HaveOccurred())
			for _, user := range config.AuthInfos {
				user.ClientCertificateData, user.ClientKeyData, user.Token = nil, nil, request.Status.Token
			}
			withToken, err := clientcmd.Write(*config)
			b.Expect(err).NotTo(HaveOccurred())
			write := func(kubeconfig []byte) {
				b.Expect(admin.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
				secret.Data["value"] = kubeconfig
				b.Expect(admin.Update(ctx, secret)).To(Succeed())
			}
			return trouble{
				make: func() {
					write(withToken)
					b.Eventually(func() bool {
						c := connection("staging")
						return c.Status.State == capstanv1.ConnectionReady && c.Status.CredentialExpiryTime != nil && time.Until(c.Status.CredentialExpiryTime.Time) < shortToken+time.Minute
					}, patience).Should(BeTrue())
					// Other tests may have moved the clock: a minute is left.
					world.clock.step(connection("staging").Status.CredentialExpiryTime.Sub(world.clock.Now()) - time.Minute)
				},
				written: func() bool { return true }, // The time passes without a change of an object.
				verdict: `\d+ of \d+ clusters needs? you`, square: square("staging"), follow: []string{`[id="square/Cluster/fleet/staging"] a`},
				reason: "Renewal is due", remedy: "kubectl describe clusterconnection -n fleet cluster.staging",
				mend: func() { write(before) },
			}
		}},
		{"promotion", func(t *testing.T) trouble {
			pipelineIn(t, appsNamespace, "breaks", func(s *pipelinesv1.PipelineSpec) {
				s.Environments[1].Promotion = nil // Not manual.
				s.Environments[1].Verification = &pipelinesv1.Verification{For: "1s", Checks: []pipelinesv1.Check{
					{Name: "error-rate", Failures: 1, Prometheus: &pipelinesv1.PrometheusCheck{Endpoint: endpointName, Query: `sum(rate(errors{app="breaks"}[5m]))`, Expression: "value < 0.01"}},
				}}
			}, "dev", "prod")
			b.Eventually(func() bool { return in(capstanv1.PhaseSucceeded, "breaks", "prod") }, patience).Should(BeTrue())
			return trouble{
				make: func() {
					world.measured.Store("0.071")
					b.Expect(release("breaks", "dev").Deploy(ctx, "1.1.0")).To(Succeed())
					b.Eventually(func() bool { return in(capstanv1.PhaseAwaitingRollout, "breaks", "prod") }, patience).Should(BeTrue())
					b.Expect(release("breaks", "prod").Deploy(ctx, "1.1.0")).To(Succeed())
				},
				written: func() bool { return in(capstanv1.PhaseFailed, "breaks", "prod") },
				verdict: `1 failed promotion`, square: square("prod"), follow: []string{`[id^="cause/failed/"] a`},
				reason: "error-rate", remedy: "capstan explain pipeline apps/breaks",
				mend: func() {
					world.measured.Store("0.004")
					p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: "breaks"}}
					b.Expect(admin.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
					b.Expect(release("breaks", "dev").Deploy(ctx, "1.2.0")).To(Succeed())
					b.Eventually(func() bool { return in(capstanv1.PhaseAwaitingRollout, "breaks", "prod") }, patience).Should(BeTrue())
					b.Expect(release("breaks", "prod").Deploy(ctx, "1.2.0")).To(Succeed())
				},
			}
		}},
		{"gate", func(t *testing.T) trouble {
			pipelineIn(t, appsNamespace, "gated", func(s *pipelinesv1.PipelineSpec) {
				s.Environments[1].Promotion = nil
				s.Gates = &pipelinesv1.Gates{Checks: []pipelinesv1.Check{
					{Name: "error-rate", Prometheus: &pipelinesv1.PrometheusCheck{Endpoint: endpointName, Query: `sum(rate(errors{app="gated"}[5m]))`, Expression: "value < 0.01"}},
				}}
			}, "dev", "prod")
			b.Eventually(runs("gated", "prod", "1.0.0"), patience).Should(BeTrue())
			var all capstanv1.PromotionList
			return trouble{
				make: func() {
					world.measured.Store("0.071")
					b.Expect(release("gated", "dev").Deploy(ctx, "1.1.0")).To(Succeed())
				},
				written: func() bool {
					if admin.List(ctx, &all, client.InNamespace(appsNamespace)) != nil {
						return false
					}
					for _, p := range all.Items {
						if p.Spec.Pipeline.Name == "gated" && len(p.Status.Checks) > 0 && p.Status.Checks[0].Verdict == capstanv1.CheckFail {
							return true
						}
					}
					return false
				},
				verdict: `1 gate in error`, follow: []string{`[id^="cause/gate/"] a`}, reason: "error-rate", remedy: "capstan explain pipeline apps/gated",
				mend: func() {
					world.measured.Store("0.004") // It is measured again after a minute.
				},
			}
		}},
		{"backend", func(t *testing.T) trouble {
			bus := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: "bus"}, Spec: eventingv1.EventingBackendSpec{Type: "http"}}
			var err error
			bus.Spec.Config, err = eventingv1.NewConfig(map[string]any{"foobar": 1})
			b.Expect(err).NotTo(HaveOccurred())
			before := seen[string](b, `document.getElementById("verdict").innerText`)
			backends := 0
			if found := regexp.MustCompile(`(\d+) backends? not ready`).FindStringSubmatch(before); found != nil {
				_, err = fmt.Sscan(found[1], &backends)
				b.Expect(err).NotTo(HaveOccurred())
			}
			return trouble{
				make: func() { b.Expect(admin.Create(ctx, bus)).To(Succeed()) },
				written: func() bool {
					return admin.Get(ctx, client.ObjectKeyFromObject(bus), bus) == nil && len(bus.Status.ValidationErrors) > 0
				},
				verdict: fmt.Sprintf(`\b%d backends? not ready`, backends+1), follow: []string{`#verdict a[href^="/backends"]`},
				reason: "config does not exist for backend type http", remedy: "foobar",
				mend: func() { b.Expect(client.IgnoreNotFound(admin.Delete(ctx, bus))).To(Succeed()) },
			}
		}},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "-"), func(t *testing.T) {
			g := NewWithT(t)
			b.open("/")
			one := tc.of(t)
			verdict := func() string { return seen[string](b, `document.getElementById("verdict").innerText`) }
			tone := func() string {
				return seen[string](b, `document.getElementById(`+"`"+one.square+"`"+`)?.querySelector("a").className`)
			}
			if one.square != "" {
				g.Eventually(tone, patience).Should(Or(Equal("mark good"), Equal("mark idle"), ContainSubstring("mark bad")))
			}
			well := tone()
			b.do(kept())
			one.make()
			defer one.mend()
			g.Eventually(one.written, patience, "20ms").Should(BeTrue(), "the hub writes it")
			began := time.Now()
			g.Eventually(verdict, patience, "20ms").Should(MatchRegexp(one.verdict))
			if one.square != "" && well == "mark good" {
				g.Eventually(tone, patience, "20ms").ShouldNot(Equal("mark good"))
			}
			took := time.Since(began)
			t.Logf("%s: shown %s after it was written", tc.name, took.Round(time.Millisecond))
			g.Expect(took).To(BeNumerically("<", shownWithin))
			g.Expect(eval[bool](b, `window.kept === true`)).To(BeTrue(), "it was not reloaded")

			g.Expect(len(one.follow)).To(BeNumerically("<=", 2), "clicks")
			for _, link := range one.follow {
				before := eval[string](b, `location.href`)
				b.do(chromedp.Click(chromedp.CSS(link)))
				clicked := time.Now()
				g.Eventually(func() string {
					at := seen[string](b, `location.href`)
					if at == before && time.Since(clicked) > clickAgain {
						clicked = time.Now()
						seen[string](b, fmt.Sprintf(`(document.querySelector(%q)?.click(), "")`, link))
					}
					return at
				}, patience).ShouldNot(Equal(before))
			}
			g.Eventually(b.opened, patience).Should(And(ContainSubstring(one.reason), ContainSubstring(one.remedy)))
		})
	}
}
