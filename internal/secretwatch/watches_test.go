package secretwatch

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/capstan-hub/capstan/playground/leaks"
)

// recorder records wakes and log lines.
type recorder struct {
	mu    sync.Mutex // guards what follows
	wakes []string
	lines []string
}

func (r *recorder) wake(waiter string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakes = append(r.wakes, waiter)
}

func (r *recorder) log(_, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

// take returns the waiters that were woken since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.wakes
	r.wakes = nil
	slices.Sort(taken)
	return slices.Compact(taken)
}

func (r *recorder) logged() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func namespace(t *testing.T, set kubernetes.Interface) string {
	t.Helper()
	ns, err := set.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "secretwatch-"}}, metav1.CreateOptions{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return ns.Name
}

func create(t *testing.T, set kubernetes.Interface, at types.NamespacedName) *corev1.Secret {
	t.Helper()
	made, err := set.CoreV1().Secrets(at.Namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: at.Name}, Data: map[string][]byte{"token": []byte("s3cr3t")},
	}, metav1.CreateOptions{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return made
}

// Watches by namespace: one for each namespace; waiters are woken when it has listed, and
// by their Secret only; the version is known from the list on.
func TestByNamespace(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	set, err := kubernetes.NewForConfig(management)
	g.Expect(err).NotTo(HaveOccurred())
	watching, err := metadata.NewForConfig(management)
	g.Expect(err).NotTo(HaveOccurred())
	here, there := namespace(t, set), namespace(t, set)
	before := goleak.IgnoreCurrent()
	one := types.NamespacedName{Namespace: here, Name: "one"}
	two := types.NamespacedName{Namespace: here, Name: "two"}
	far := types.NamespacedName{Namespace: there, Name: "one"}
	made := create(t, set, one)

	r := &recorder{}
	w := New(Options[string]{Client: watching, Wake: r.wake, WakeWhenListed: true, Logger: funcr.New(r.log, funcr.Options{})})
	w.Want("a", one)
	_, known := w.Version(one)
	g.Expect(known).To(BeFalse(), "it has not started")
	w.Start(ctx)
	w.Want("b", two)
	w.Want("b", two)
	w.Want("c", far)
	g.Expect(w.lockedState.open).To(HaveLen(2), "one watch for each namespace")
	var woken []string
	g.Eventually(func() []string { woken = append(woken, r.take()...); return woken }).Should(ContainElements("a", "b", "c"))
	version := func(at types.NamespacedName) func() string {
		return func() string {
			v, known := w.Version(at)
			if !known {
				return "unknown"
			}
			return v
		}
	}
	g.Eventually(version(one)).Should(Equal(made.ResourceVersion))
	g.Eventually(version(two)).Should(BeEmpty(), "it does not exist")
	item, exists, err := w.lockedState.open[target{Namespace: here}].informer.GetStore().GetByKey(one.String())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(exists).To(BeTrue())
	g.Expect(item).To(BeAssignableToTypeOf(&metav1.PartialObjectMetadata{}), "no data of a Secret is received")

	r.take()
	second := create(t, set, two)
	// a may be woken late: by the Secret, and again when its namespace is listed.
	g.Eventually(r.take).Should(And(ContainElement("b"), Not(ContainElement("c"))))
	g.Expect(version(two)()).To(Equal(second.ResourceVersion))
	g.Expect(set.CoreV1().Secrets(here).Delete(ctx, "one", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(r.take).Should(ConsistOf("a"))
	g.Eventually(version(one)).Should(BeEmpty())

	w.Want("a", far)
	g.Expect(set.CoreV1().Secrets(here).Delete(ctx, "two", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(r.take).Should(And(ContainElement("b"), Not(ContainElement("c"))))
	w.Drop("b")
	w.Drop("b")
	g.Expect(w.lockedState.open).To(HaveLen(1))
	_, known = w.Version(one)
	g.Expect(known).To(BeFalse(), "its namespace is not watched any more")
	create(t, set, far)
	woken = nil
	g.Eventually(func() []string {
		woken = append(woken, r.take()...)
		return slices.Compact(slices.Sorted(slices.Values(woken)))
	}).Should(ConsistOf("a", "c"))
	w.Drop("a")
	w.Drop("c")
	w.Wait()
	g.Expect(r.logged()).To(BeEmpty())
	g.Eventually(func() error { return leaks.Find(before) }).Should(Succeed())
}

// A namespace where the watch is forbidden is logged once, with what it means, and does
// not affect another; its waiters are woken when the right is given.
func TestForbiddenNamespace(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	set, err := kubernetes.NewForConfig(management)
	g.Expect(err).NotTo(HaveOccurred())
	allowed, denied := namespace(t, set), namespace(t, set)
	config := rest.CopyConfig(management)
	config.Impersonate = rest.ImpersonationConfig{UserName: "secretwatch-" + allowed, Groups: []string{"system:authenticated"}}
	grant := func(namespace string) {
		_, err := set.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "watch"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}},
		}}, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		_, err = set.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "watch"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "watch"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: config.Impersonate.UserName}},
		}, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
	}
	grant(allowed)
	watching, err := metadata.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() error { // The API server applies the grant a moment later.
		_, err := watching.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(allowed).List(ctx, metav1.ListOptions{})
		return err
	}).Should(Succeed())
	may, mayNot := types.NamespacedName{Namespace: allowed, Name: "one"}, types.NamespacedName{Namespace: denied, Name: "one"}

	r := &recorder{}
	w := New(Options[string]{
		Client: watching, Wake: r.wake, WakeWhenListed: true, Consequence: "give the right", Logger: funcr.New(r.log, funcr.Options{}),
	})
	w.Want("denied", mayNot)
	w.Want("allowed", may)
	w.Start(ctx)
	g.Eventually(r.take).Should(ConsistOf("allowed"))
	g.Eventually(r.logged).Should(ContainElement(And(ContainSubstring(denied), ContainSubstring("forbidden"), ContainSubstring("give the right"))))
	g.Expect(r.logged()).NotTo(ContainElement(ContainSubstring(allowed+`"`)), "another namespace is not affected")
	create(t, set, may)
	g.Eventually(r.take).Should(ConsistOf("allowed"))
	_, known := w.Version(mayNot)
	g.Expect(known).To(BeFalse())
	g.Expect(strings.Join(r.logged(), "\n")).NotTo(ContainSubstring("s3cr3t"))

	create(t, set, mayNot)
	grant(denied)
	g.Eventually(r.take, "30s").Should(ContainElement("denied"), "the watch is tried again")
	g.Eventually(func() bool { _, known := w.Version(mayNot); return known }).Should(BeTrue())
	w.Drop("allowed")
	w.Drop("denied")
	w.Wait()
}

// Without a client nothing is watched.
func TestWithoutAClient(t *testing.T) {
	g := NewWithT(t)
	s := NewSource(nil, "no object is woken")
	g.Expect(s.Start(t.Context(), nil)).To(Succeed())
	s.Want(named("a"), named("b"))
	g.Expect(s.lockedState.open).To(BeEmpty())
	s.Drop(named("a"))
	s.Wait()
}
