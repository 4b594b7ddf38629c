package dashboard

import (
	"net/http"
	"net/url"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

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
	w.Expect(form).To(And(HaveField("Code", 200), HaveField("Body", ContainSubstring("system:serviceaccount:"+w.apps+":ada"))))
	fields := form.fields()

	unapproved := func() {
		t.Helper()
		w.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
		w.Expect(promotion.Spec.Approval).To(BeNil())
	}
	post := func(b *browser, fields url.Values, header http.Header) int {
		return b.do("POST", path, fields, header).Code
	}
	w.Expect(reader.get(path)).To(And(HaveField("Code", 403), HaveField("Body", ContainSubstring("capstan-approver"))))
	w.Expect(post(reader, fields, nil)).To(Equal(403))
	w.Expect(post(stranger, fields, nil)).To(Equal(404))
	w.Expect(post(w.browser(), fields, nil)).To(Equal(303), "who is not signed in is asked to")
	w.Expect(post(approver, url.Values{"uid": fields["uid"]}, nil)).To(Equal(403), "without the form's token")
	w.Expect(post(approver, url.Values{"uid": fields["uid"], "csrf": reader.get("/").fields()["csrf"]}, nil)).To(Equal(403), "with another session's")
	w.Expect(post(approver, fields, http.Header{"Sec-Fetch-Site": {"cross-site"}})).To(Equal(403), "from another site")
	w.Expect(post(approver, fields, http.Header{"Origin": {"https://evil.example"}})).To(Equal(403), "from another origin")
	w.Expect(post(approver, url.Values{"csrf": fields["csrf"], "uid": {"another"}}, nil)).To(Equal(409), "of another promotion of the name")
	unapproved()

	w.Expect(post(approver, fields, http.Header{"Sec-Fetch-Site": {"same-origin"}})).To(Equal(303))
	w.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
	w.Expect(promotion.Spec.Approval).To(Equal(&capstanv1.Approval{By: "system:serviceaccount:" + w.apps + ":ada"}))
	w.Eventually(func() int { return approver.get(path).Code }, patience).Should(Equal(409), "it does not wait any more")
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
	w.Eventually(func() int { return b.get(path).Code }, patience).Should(Equal(200))
	w.Expect(b.do("POST", path, b.get(path).fields(), nil)).To(And(HaveField("Code", 403), HaveField("Body", ContainSubstring("cannot patch resource"))))
	w.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
	w.Expect(promotion.Spec.Approval).To(BeNil())
}
