package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/hub/useraction"
)

// Rules by which a test recognises that a ClusterRole is in force.
var (
	mayPatch    = rbacv1.PolicyRule{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotions"}, Verbs: []string{"patch"}}
	mayOverride = rbacv1.PolicyRule{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotions"}, Verbs: []string{"override"}}
	mayRequest  = rbacv1.PolicyRule{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotionrequests"}, Verbs: []string{"create"}}
	mayWrite    = rbacv1.PolicyRule{APIGroups: []string{"pipelines.weave.works"}, Resources: []string{"pipelines"}, Verbs: []string{"patch"}}
)

// actor signs in a user who may list everything in the namespace of the Pipelines, and has some of config's ClusterRoles.
func (w *world) actor(name string, roles map[string]rbacv1.PolicyRule) *browser {
	w.t.Helper()
	w.may(w.apps, w.subject(name), lists)
	for role, rule := range roles {
		w.binds(w.subject(name), role, rule)
	}
	b := w.browser()
	w.Expect(b.signIn(w.account(name)).Code).To(Equal(303))
	return b
}

func (w *world) user(account string) string { return "system:serviceaccount:" + w.apps + ":" + account }

// post confirms an action with the fields of its page and more.
func (b *browser) post(path string, form answer, more map[string]string) answer {
	b.w.t.Helper()
	fields := form.fields()
	for key, value := range more {
		fields.Set(key, value)
	}
	return b.do("POST", path, fields, nil)
}

// reload reads an object from the API server.
func (w *world) reload(o client.Object) {
	w.t.Helper()
	w.Expect(w.c.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
}

// promotion creates the promotion no. n into an environment, with a status.
func (w *world) promotion(p *pipelinesv1.Pipeline, environment, revision string, n int64, status capstanv1.PromotionStatus) *capstanv1.Promotion {
	w.t.Helper()
	promotion := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.apps, Name: fmt.Sprintf("%s-%s-%d", p.Name, environment, n), Labels: map[string]string{capstanv1.PipelineUIDLabel: string(p.UID)}},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: p.Name, UID: p.UID}, App: p.Spec.AppRef, Environment: environment, Number: n,
			Revision: revision, Source: capstanv1.PromotionSource{Environment: "dev", Sequence: n}, Strategy: p.Spec.Promotion.Strategy, Manual: true,
		},
	}
	w.Expect(w.c.Create(w.t.Context(), promotion)).To(Succeed())
	promotion.Status = status
	w.Expect(w.c.Status().Update(w.t.Context(), promotion)).To(Succeed())
	w.seen(promotion)
	return promotion
}

// A user with the permission approves with the own user name, through the admission policy
// and with the form of the own session. Other users cannot approve.
func TestApprove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	w.cluster("dev")
	p := w.pipeline("shop", "1.0.0", "dev")
	promotion := w.waits(p, "dev", "1.1.0")
	path := "/promotions/" + w.apps + "/" + promotion.Name + "/approve"
	approver, reader, stranger := w.browser(), w.browser(), w.browser()
	w.approver(w.subject("ada"))
	w.may(w.apps, w.subject("ada"), lists)
	w.may(w.apps, w.subject("bob"), lists)
	for name, b := range map[string]*browser{"ada": approver, "bob": reader, "eve": stranger} {
		w.Expect(b.signIn(w.account(name)).Code).To(Equal(303))
	}
	w.Eventually(func() string { return approver.get("/pipelines").Body }, patience).Should(ContainSubstring(`href="` + path + `"`))
	w.Expect(reader.get("/pipelines").Body).To(And(ContainSubstring("Awaiting approval"), Not(ContainSubstring(path))))
	form := approver.get(path)
	w.Expect(form).To(And(HaveField("Code", 200), HaveField("Body", And(ContainSubstring(w.user("ada")), ContainSubstring(w.fleet+"/dev"), ContainSubstring("spec.approval"), ContainSubstring(`data-live="`+path)))))
	fields := form.fields()

	unapproved := func() {
		t.Helper()
		w.reload(promotion)
		w.Expect(promotion.Spec.Approval).To(BeNil())
	}
	post := func(b *browser, fields url.Values, header http.Header) int {
		return b.do("POST", path, fields, header).Code
	}
	w.Expect(reader.get(path)).To(And(HaveField("Code", 200), HaveField("Body", And(ContainSubstring("capstan-approver"), Not(ContainSubstring("<button type=\"submit\" form"))))))
	w.Expect(post(reader, url.Values{"uid": fields["uid"], "newest": fields["newest"], "csrf": reader.get("/").fields()["csrf"]}, nil)).To(Equal(403), "the right is checked for the form, too")
	w.Expect(stranger.get(path).Code).To(Equal(404))
	w.Expect(post(reader, fields, nil)).To(Equal(403))
	w.Expect(post(stranger, fields, nil)).To(Equal(404))
	w.Expect(post(w.browser(), fields, nil)).To(Equal(303), "who is not signed in is asked to")
	w.Expect(post(approver, url.Values{"uid": fields["uid"], "newest": fields["newest"]}, nil)).To(Equal(403), "without the form's token")
	w.Expect(post(approver, url.Values{"uid": fields["uid"], "newest": fields["newest"], "csrf": reader.get("/").fields()["csrf"]}, nil)).To(Equal(403), "with another session's")
	w.Expect(post(approver, fields, http.Header{"Sec-Fetch-Site": {"cross-site"}})).To(Equal(403), "from another site")
	w.Expect(post(approver, fields, http.Header{"Origin": {"https://evil.example"}})).To(Equal(403), "from another origin")
	w.Expect(post(approver, url.Values{"csrf": fields["csrf"], "newest": fields["newest"], "uid": {"another"}}, nil)).To(Equal(409), "of another promotion of the name")
	w.Expect(approver.post(path, form, map[string]string{"comment": strings.Repeat("é", 501)})).To(And(HaveField("Code", 422), HaveField("Body", ContainSubstring("501 characters"))))
	unapproved()

	fields.Set("comment", " the release notes are ready\r\nand checked ")
	w.Expect(post(approver, fields, http.Header{"Sec-Fetch-Site": {"same-origin"}})).To(Equal(303))
	w.reload(promotion)
	w.Expect(promotion.Spec.Approval).To(Equal(&capstanv1.Approval{By: w.user("ada"), Comment: "the release notes are ready\nand checked"}))
	w.Eventually(func() answer { return approver.do("POST", path, fields, nil) }, patience).Should(
		And(HaveField("Code", 409), HaveField("Body", ContainSubstring("already approved by "+w.user("ada")))), "it does not wait any more")
	w.Expect(approver.get("/pipelines/" + w.apps + "/shop").Body).To(ContainSubstring("approved by " + w.user("ada") + ": the release notes are ready"))
	w.Expect(testutil.ToFloat64(w.server.metrics.actions.WithLabelValues("approve", "ok"))).To(Equal(1.0))
	w.Expect(testutil.ToFloat64(w.server.metrics.actions.WithLabelValues("approve", "refused"))).To(BeNumerically(">", 5))
}

// The dashboard checks the verb approve. The API server refuses users who have it and may
// not patch, and users who lost the permission since.
func TestApproveIsTheAPIServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	p := w.pipeline("shop", "1.0.0", "dev")
	promotion := w.waits(p, "dev", "1.1.0")
	path := "/promotions/" + w.apps + "/" + promotion.Name + "/approve"
	verb := lists
	verb.Verbs = []string{"list", "approve"}
	w.may(w.apps, w.subject("ada"), verb)
	b := w.browser()
	w.Expect(b.signIn(w.account("ada")).Code).To(Equal(303))
	w.Eventually(func() url.Values { return b.get(path).fields() }, patience).Should(HaveKey("uid"))
	w.Expect(b.do("POST", path, b.get(path).fields(), nil)).To(And(HaveField("Code", 403), HaveField("Body", And(ContainSubstring("cannot patch resource"), ContainSubstring("ClusterRole capstan-approver")))))
	w.reload(promotion)
	w.Expect(promotion.Spec.Approval).To(BeNil())
}

// The page of an action is live, and what its viewers share has no token of a session.
func TestActionPageIsLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	w.cluster("dev")
	p := w.pipeline("shop", "1.0.0", "dev", "prod")
	old := w.promotion(p, "prod", "1.1.0", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
	path := "/promotions/" + w.apps + "/" + old.Name + "/approve"
	ada := w.actor("ada", map[string]rbacv1.PolicyRule{"capstan-approver": mayPatch})
	form := ada.get(path)
	w.Expect(form.fields()).To(HaveKey("uid"))
	version := regexp.MustCompile(`data-version="([^"]+)"`).FindStringSubmatch(form.Body)[1]
	csrf := form.fields().Get("csrf")
	changes := func() string { return ada.get("/changes?page=" + url.QueryEscape(path) + "&from=" + version).Body }

	newer := w.promotion(p, "prod", "1.2.0", 2, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
	next := "/promotions/" + w.apps + "/" + newer.Name + "/approve"
	w.Eventually(changes, patience).Should(And(ContainSubstring("A newer promotion replaced it: no. 2, of 1.2.0"), ContainSubstring(next), ContainSubstring(`"form":["action-refusal"]`)))
	w.Expect(changes()).NotTo(ContainSubstring(csrf))
	w.Expect(ada.post(path, form, nil)).To(And(HaveField("Code", 409), HaveField("Body", And(ContainSubstring("A newer promotion replaced it"), ContainSubstring(`href="`+next+`"`)))))
	w.reload(old)
	w.Expect(old.Spec.Approval).To(BeNil())
	w.Expect(ada.post(next, ada.get(next), nil).Code).To(Equal(303))
}

// Two users decide at once, before the dashboard has seen the decision of the first one: the second one is told who
// decided, and nothing is overwritten.
func TestTwoDecideAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	p := w.pipeline("shop", "1.0.0", "dev", "prod")
	first := w.promotion(p, "dev", "1.1.0", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
	second := w.promotion(p, "prod", "1.1.0", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
	approver := map[string]rbacv1.PolicyRule{"capstan-approver": mayPatch}
	w.actor("ada", approver)
	bob := w.actor("bob", approver)
	own, err := w.server.own(viewer{session: session{Token: w.token("ada")}})
	w.Expect(err).NotTo(HaveOccurred())

	for of, spec := range map[*capstanv1.Promotion]struct {
		mine, other, text string
		patch             map[string]any
	}{
		first:  {"approve", "reject", "already rejected by " + w.user("ada") + ": not today", map[string]any{"rejection": capstanv1.Rejection{By: w.user("ada"), Comment: "not today"}}},
		second: {"reject", "approve", "already approved by " + w.user("ada"), map[string]any{"approval": capstanv1.Approval{By: w.user("ada")}}},
	} {
		path := "/promotions/" + w.apps + "/" + of.Name + "/" + spec.mine
		form := bob.get(path)
		w.Expect(form.fields()).To(HaveKey("uid"))
		judged := of.DeepCopy() // As the dashboard has it until its watch has the decision.
		patch, err := json.Marshal(map[string]any{"spec": spec.patch})
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(own.Patch(t.Context(), of.DeepCopy(), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		v := viewer{session: session{Token: w.token("bob")}, facts: &view.Facts{Promotions: []capstanv1.Promotion{*judged}}, scope: view.Scope{Approve: view.Namespaces{All: true}}}
		v.user.Username = w.user("bob")
		action, _, found := view.FindAction(v.facts, view.Everything(), "promotions", []string{w.apps, of.Name, spec.mine})
		w.Expect(found).To(BeTrue())
		o := order{useraction.Order{Action: action, Subject: &useraction.Subject{Promotion: judged}, By: v.user.Username, Input: useraction.Input{Comment: "mine"}}}
		refusal, err := w.server.carryOut(t.Context(), v, &o)
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(refusal).To(And(HaveField("Text", ContainSubstring(spec.text)), HaveField("At", Not(BeZero()))))
		w.Expect(bob.post(path, form, map[string]string{"comment": "mine"})).To(And(HaveField("Code", 409), HaveField("Body", ContainSubstring(spec.text))))
		w.reload(of)
		if spec.mine == "approve" {
			w.Expect(of.Spec.Approval).To(BeNil())
		} else {
			w.Expect(of.Spec.Rejection).To(BeNil())
		}
	}
}

// A rejection needs a comment, which is recorded under the own name. It is refused when the promotion has begun.
func TestReject(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	p := w.pipeline("shop", "1.0.0", "dev", "prod")
	waiting := w.promotion(p, "dev", "1.1.0", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
	begun := w.promotion(p, "prod", "1.1.0", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingMerge, URL: "https://git.example/1"})
	path := "/promotions/" + w.apps + "/" + waiting.Name + "/reject"
	ada, otto := w.actor("ada", map[string]rbacv1.PolicyRule{"capstan-approver": mayPatch}), w.actor("otto", map[string]rbacv1.PolicyRule{"capstan-operator": mayPatch})
	w.Expect(otto.get(path)).To(And(HaveField("Code", 200), HaveField("Body", ContainSubstring("you need the verb approve"))))
	form := ada.get(path)
	w.Expect(otto.post(path, otto.get(path), map[string]string{"uid": form.fields().Get("uid"), "comment": "no"}).Code).To(Equal(403))
	w.Expect(ada.post(path, form, nil)).To(And(HaveField("Code", 422), HaveField("Body", ContainSubstring("A reason is required"))))
	w.Expect(ada.post(path, form, map[string]string{"comment": "not before the release notes"}).Code).To(Equal(303))
	w.reload(waiting)
	w.Expect(waiting.Spec.Rejection).To(Equal(&capstanv1.Rejection{By: w.user("ada"), Comment: "not before the release notes"}))
	w.Eventually(func() string { return ada.get(path).Body }, patience).Should(ContainSubstring("already rejected by " + w.user("ada") + ": not before the release notes"))
	w.Expect(ada.get("/promotions/" + w.apps + "/" + begun.Name + "/reject").Body).To(And(ContainSubstring("Close its pull request to reject it."), Not(ContainSubstring(`name="uid"`))))
}

// A finished promotion is started again once, by a user who may patch it.
func TestRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	p := w.pipeline("shop", "1.0.0", "dev", "prod")
	failed := w.promotion(p, "dev", "1.1.0", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "Impossible"})
	flying := w.promotion(p, "prod", "1.1.0", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting})
	path := "/promotions/" + w.apps + "/" + failed.Name + "/retry"
	otto, reader := w.actor("otto", map[string]rbacv1.PolicyRule{"capstan-operator": mayPatch}), w.actor("rita", nil)
	form := otto.get(path)
	w.Expect(reader.get(path).Body).To(And(ContainSubstring("capstan-operator"), Not(ContainSubstring(`name="uid"`))))
	w.Expect(reader.post(path, reader.get(path), map[string]string{"uid": form.fields().Get("uid"), "newest": "0"}).Code).To(Equal(403))
	w.Expect(otto.get("/promotions/" + w.apps + "/" + flying.Name + "/retry").Body).To(ContainSubstring("has not finished: it is Promoting"))
	w.Expect(otto.post(path, form, nil).Code).To(Equal(303))
	w.reload(failed)
	w.Expect(failed.Spec.Retry).To(Equal(int64(1)))
	w.Eventually(func() answer { return otto.post(path, form, nil) }, patience).Should(And(HaveField("Code", 409), HaveField("Body", ContainSubstring("already started again (retry 1)"))))
	w.reload(failed)
	w.Expect(failed.Spec.Retry).To(Equal(int64(1)), "the second one raises nothing")
}

// A gate is overridden with the verb, and a PromotionWindow only with that of the window.
func TestOverride(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	p := w.pipeline("shop", "1.0.0", "dev", "prod")
	gates := []capstanv1.GateStatus{
		{Name: capstanv1.GateSoak, Type: capstanv1.SoakGate, State: capstanv1.GateClosed, Reason: "Soaking", Message: "soaks for 2h"},
		{Name: capstanv1.GateWindows, Type: capstanv1.WindowGate, State: capstanv1.GateOpen},
		{Name: capstanv1.GatePromotionWindows, Type: capstanv1.PromotionWindowGate, State: capstanv1.GateClosed, Message: "winter freeze"},
	}
	promotion := w.promotion(p, "prod", "1.1.0", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, Gates: gates})
	at := func(gate string) string { return "/promotions/" + w.apps + "/" + promotion.Name + "/override/" + gate }
	olga, ada := w.actor("olga", map[string]rbacv1.PolicyRule{"capstan-overrider": mayOverride}), w.actor("ada", map[string]rbacv1.PolicyRule{"capstan-approver": mayPatch})
	page := olga.get("/pipelines/" + w.apps + "/shop").Body
	w.Expect(page).To(And(ContainSubstring(at("soak")), Not(ContainSubstring(at("windows"))), Not(ContainSubstring(at("promotion-windows")))), "gates that are closed, and that olga may override")
	form := olga.get(at("soak"))
	w.Expect(form.Body).To(And(ContainSubstring("soaks for 2h"), ContainSubstring("winter freeze"), ContainSubstring("spec.overrides")))
	w.Expect(ada.get(at("soak")).Body).To(ContainSubstring("capstan-overrider"))
	w.Expect(ada.post(at("soak"), ada.get(at("soak")), map[string]string{"uid": form.fields().Get("uid"), "newest": "0", "comment": "x"}).Code).To(Equal(403))
	w.Expect(olga.get(at("windows")).Body).To(ContainSubstring("The gate windows is open."))
	w.Expect(olga.get(at("promotion-windows")).Body).To(ContainSubstring("capstan-window-admin"))
	w.Expect(olga.get(at("approval")).Body).To(ContainSubstring("no gate approval"))
	w.Expect(olga.post(at("soak"), form, nil).Code).To(Equal(422), "without a reason")
	w.Expect(olga.post(at("soak"), form, map[string]string{"comment": "incident 4711"}).Code).To(Equal(303))
	w.reload(promotion)
	w.Expect(promotion.Spec.Overrides).To(Equal([]capstanv1.Override{{Gate: "soak", By: w.user("olga"), Reason: "incident 4711"}}))
	w.Eventually(func() answer { return olga.post(at("soak"), form, map[string]string{"comment": "again"}) }, patience).Should(
		And(HaveField("Code", 409), HaveField("Body", ContainSubstring("already overridden by "+w.user("olga")+": incident 4711"))))

	admin := rbacv1.PolicyRule{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotionwindows"}, Verbs: []string{"override"}}
	w.Expect(w.c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "windows-"}, Subjects: []rbacv1.Subject{w.subject("walt")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "capstan-window-admin"},
	})).To(Succeed())
	w.granted("", w.subject("walt"), admin)
	walt := w.actor("walt", map[string]rbacv1.PolicyRule{"capstan-overrider": mayOverride})
	w.Expect(walt.post(at("promotion-windows"), walt.get(at("promotion-windows")), map[string]string{"comment": "hotfix"}).Code).To(Equal(303))
	w.reload(promotion)
	w.Expect(promotion.Spec.Overrides).To(HaveLen(2), "the first one stays")
}

// A Pipeline is suspended and resumed by a user who may patch it.
func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	w.cluster("dev")
	p := w.pipeline("shop", "1.0.0", "dev")
	at := "/pipelines/" + w.apps + "/shop/"
	tom, ada := w.actor("tom", map[string]rbacv1.PolicyRule{"capstan-tenant": mayWrite}), w.actor("ada", map[string]rbacv1.PolicyRule{"capstan-approver": mayPatch})
	link := ContainSubstring(`href="` + at + `suspend"`)
	w.Expect(tom.get("/pipelines/" + w.apps + "/shop").Body).To(link)
	w.Expect(ada.get("/pipelines/" + w.apps + "/shop").Body).NotTo(link)
	form := tom.get(at + "suspend")
	w.Expect(form.Body).To(And(ContainSubstring("spec.suspend: true"), ContainSubstring(w.fleet+"/dev")))
	w.Expect(ada.get(at + "suspend").Body).To(ContainSubstring("capstan-tenant"))
	w.Expect(ada.post(at+"suspend", ada.get(at+"suspend"), map[string]string{"uid": form.fields().Get("uid"), "newest": "0"}).Code).To(Equal(403))
	w.Expect(tom.get(at + "resume").Body).To(ContainSubstring("The Pipeline is not suspended."))
	w.Expect(tom.post(at+"suspend", form, nil).Code).To(Equal(303))
	w.reload(p)
	w.Expect(p.Spec.Suspend).To(BeTrue())
	w.Eventually(func() answer { return tom.post(at+"suspend", form, nil) }, patience).Should(And(HaveField("Code", 409), HaveField("Body", ContainSubstring("already suspended"))))
	w.Expect(tom.post(at+"resume", tom.get(at+"resume"), nil).Code).To(Equal(303))
	w.reload(p)
	w.Expect(p.Spec.Suspend).To(BeFalse())
}

// A promotion and a rollback are requested under the own name. Of two users the second one is refused, also with
// another revision, until the hub has carried out or refused the first request.
func TestPromoteAndRollBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	w.cluster("dev")
	p := w.pipeline("shop", "1.2.0", "dev", "prod")
	w.runs(p, "prod", "1.1.0")
	done := capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded}
	carried := metav1.NewTime(w.clock.Now().Truncate(1e9))
	done.CarriedOutTime = &carried
	w.promotion(p, "prod", "1.0.0", 1, done)
	w.promotion(p, "prod", "1.1.0", 2, done)
	at := func(action, environment string) string {
		return "/pipelines/" + w.apps + "/shop/" + action + "/" + environment
	}
	promoter := map[string]rbacv1.PolicyRule{"capstan-promoter": mayRequest}
	ada, bob, rita := w.actor("ada", promoter), w.actor("bob", promoter), w.actor("rita", nil)
	requests := func() []capstanv1.PromotionRequest {
		all := &capstanv1.PromotionRequestList{}
		w.Expect(w.c.List(t.Context(), all, client.InNamespace(w.apps))).To(Succeed())
		return all.Items
	}

	links := ContainSubstring(`href="` + at("rollback", "prod") + `"`)
	w.Expect(ada.get("/pipelines/" + w.apps + "/shop").Body).To(And(links, ContainSubstring(at("promote", "prod")), Not(ContainSubstring(at("promote", "dev")))))
	w.Expect(rita.get("/pipelines/" + w.apps + "/shop").Body).NotTo(links)

	form, theirs, rollback := ada.get(at("promote", "prod")), bob.get(at("promote", "prod")), bob.get(at("rollback", "prod"))
	w.Expect(form.Body).To(And(ContainSubstring(`value="1.2.0"`), ContainSubstring(`value="1.0.0"`), ContainSubstring("Source: dev")))
	w.Expect(rollback.Body).To(ContainSubstring("The rollback promotes <code>1.0.0</code>."))
	w.Expect(rita.get(at("promote", "prod")).Body).To(ContainSubstring("capstan-promoter"))
	w.Expect(rita.post(at("promote", "prod"), rita.get(at("promote", "prod")), map[string]string{"uid": form.fields().Get("uid"), "newest": "2", "revision": "1.2.0", "comment": "x"}).Code).To(Equal(403))
	w.Expect(ada.get(at("promote", "dev")).Body).To(ContainSubstring("is the first environment"))
	w.Expect(ada.get(at("promote", "nowhere")).Code).To(Equal(404))
	w.Expect(ada.post(at("promote", "prod"), form, map[string]string{"revision": "9.9.9", "comment": "x"})).To(And(HaveField("Code", 422), HaveField("Body", ContainSubstring("Choose one of the revisions"))))
	w.Expect(requests()).To(BeEmpty())

	w.Expect(ada.post(at("promote", "prod"), form, map[string]string{"revision": "1.2.0", "comment": "hotfix"}).Code).To(Equal(303))
	w.Expect(requests()).To(ConsistOf(HaveField("Spec", capstanv1.PromotionRequestSpec{Pipeline: "shop", Environment: "prod", Revision: "1.2.0", By: w.user("ada"), Reason: "hotfix"})))
	w.Expect(bob.post(at("promote", "prod"), theirs, map[string]string{"revision": "1.1.0", "comment": "mine"})).To(And(HaveField("Code", 409), HaveField("Body", And(ContainSubstring("already requested by "+w.user("ada")), ContainSubstring("1.2.0 into prod")))))
	w.Expect(bob.post(at("rollback", "prod"), rollback, map[string]string{"comment": "mine"}).Code).To(Equal(409))
	w.Expect(requests()).To(HaveLen(1))

	handled := requests()[0]
	handled.Status.Phase = capstanv1.RequestRefused
	w.Expect(w.c.Status().Update(t.Context(), &handled)).To(Succeed())
	w.Expect(bob.post(at("rollback", "prod"), rollback, map[string]string{"comment": "mine"}).Code).To(Equal(303), "the first one promotes nothing")
	w.Expect(requests()).To(ContainElement(HaveField("Spec", capstanv1.PromotionRequestSpec{Pipeline: "shop", Environment: "prod", Rollback: &capstanv1.RollbackRequest{}, By: w.user("bob"), Reason: "mine"})))

	w.promotion(p, "prod", "1.2.0", 3, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
	w.Expect(ada.post(at("promote", "prod"), form, map[string]string{"revision": "1.1.0", "comment": "late"})).To(And(HaveField("Code", 409), HaveField("Body", And(
		ContainSubstring("A newer promotion replaced it: no. 3"), ContainSubstring(`href="/promotions/`+w.apps+`/shop-prod-3/approve"`)))), "an outdated form")
}

// The log of the hub names who did what to which object.
func TestActionsAreLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	p := w.pipeline("shop", "1.0.0", "dev")
	promotion := w.waits(p, "dev", "1.1.0")
	ada := w.actor("ada", map[string]rbacv1.PolicyRule{"capstan-approver": mayPatch})
	path := "/promotions/" + w.apps + "/" + promotion.Name + "/approve"
	w.Expect(ada.post(path, ada.get(path), nil).Code).To(Equal(303))
	w.Eventually(w.lines, patience).Should(Receive(And(
		ContainSubstring("action of a user [action approve by "+w.user("ada")), ContainSubstring("promotion "+w.apps+"/"+promotion.Name), ContainSubstring("revision 1.1.0"))))
}
