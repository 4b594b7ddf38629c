package dashboard

import (
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// In dry run every page says so, that of a Pipeline says what would be promoted, and a user with all rights can change
// nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *Options) { o.Auth, o.DryRun = AuthToken, true })
	p := w.pipeline("shop", "1.0.0", "dev", "prod")
	p.Status.DryRun = &pipelinesv1.DryRunStatus{Message: "Dry run: 1.1.0 would be promoted into prod"}
	w.Expect(w.c.Status().Update(t.Context(), p)).To(Succeed())
	w.seen(p)
	tom := w.actor("tom", map[string]rbacv1.PolicyRule{"capstan-tenant": mayWrite})
	at := "/pipelines/" + w.apps + "/shop"
	w.Eventually(func() string { return tom.get(at).Body }, patience).Should(ContainSubstring("1.1.0 would be promoted into prod"))
	w.Expect(tom.get(at).Body).To(And(ContainSubstring("<b>Dry run</b>: the hub shows what it would promote"), Not(ContainSubstring(at+"/suspend"))))
	w.Expect(tom.get("/").Body).To(ContainSubstring("<b>Dry run</b>"))
	form := tom.get(at + "/suspend")
	w.Expect(tom.post(at+"/suspend", form, map[string]string{"uid": string(p.UID), "newest": "0"}).Code).To(Equal(403))
	w.reload(p)
	w.Expect(p.Spec.Suspend).To(BeFalse())
}
