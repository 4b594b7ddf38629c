package useraction

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Each action says what it needs, does and records, and has its rule and its writer.
func TestActionsAreComplete(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	seen := map[string]bool{}
	for _, a := range All() {
		g.Expect(seen[a.Name]).To(BeFalse(), a.Name)
		seen[a.Name] = true
		g.Expect(Find(a.Name)).To(BeIdenticalTo(a))
		for _, text := range []string{a.Label, a.Done, a.Verb, a.Resource, a.Role, a.Effect, a.Record} {
			g.Expect(text).NotTo(BeEmpty(), a.Name)
		}
		g.Expect(a.refuse).NotTo(BeNil(), a.Name)
		g.Expect(a.write).NotTo(BeNil(), a.Name)
	}
	g.Expect(Find("delete")).To(BeNil())
}

func TestPolicyDenial(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const denied = `admission "x" with binding "x" denied request: you cannot approve in the name of another user.`
	why, is := PolicyDenial(errors.New(denied))
	g.Expect(is).To(BeTrue())
	g.Expect(why).To(Equal("you cannot approve in the name of another user"))
	_, is = PolicyDenial(errors.New(`promotions.capstan.dev "p" is forbidden: User "eve" cannot patch resource`))
	g.Expect(is).To(BeFalse())
}

// An environment that was removed from the Pipeline after the user saw it gets no promotion.
func TestRequestsForAnEnvironmentThatWasRemoved(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "shop"}}
	p.Spec.Environments = []pipelinesv1.Environment{{Name: "dev"}}
	for _, name := range []string{Promote, Rollback} {
		g.Expect(Find(name).Refuse(nil, &Subject{Pipeline: p, Environment: "prod"})).To(HaveValue(HaveField("Text", "The Pipeline has no environment prod.")))
	}
}

// The revisions that can be promoted are those of the environments, then those of promotions, newest first, at most a
// number of them, and none that spec.reject names.
func TestRevisions(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "shop", UID: "u"}}
	p.Spec.Environments = []pipelinesv1.Environment{{Name: "dev"}, {Name: "prod"}}
	p.Spec.Reject = []string{"1.1.0"}
	p.Status.Environments = map[string]*pipelinesv1.EnvironmentStatus{"dev": {Targets: []pipelinesv1.TargetStatus{{Revision: "1.2.0"}}}}
	of := []capstanv1.Promotion{{ObjectMeta: metav1.ObjectMeta{Namespace: "apps"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "apps"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "other"}}}
	for i, revision := range []string{"1.1.0", "1.0.0", "0.9.0"} {
		of[i].Spec.Pipeline.Name, of[i].Spec.Revision = "shop", revision
	}
	s := &Subject{Pipeline: p, Environment: "prod"}
	g.Expect(Revisions(of, s, 5)).To(Equal([]Revision{{Revision: "1.2.0", Runs: []string{"dev"}}, {Revision: "1.0.0"}}))
	g.Expect(Revisions(of, s, 1)).To(HaveLen(1))
	g.Expect(Find(Promote).Check(Revisions(of, s, 5), Input{Comment: "hotfix", Revision: "1.0.0"})).To(BeEmpty())
	g.Expect(Find(Promote).Check(Revisions(of, s, 5), Input{Comment: "hotfix", Revision: "1.1.0"})).To(ContainSubstring("Choose one"))
}
