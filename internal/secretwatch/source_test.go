package secretwatch

import (
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

var management *rest.Config

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	SetDefaultEventuallyTimeout(30 * time.Second) // The machine may be busy.
	plane, err := controlplane.Start(controlplane.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	management = plane.Config()
	return m.Run()
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// An object is woken by a change of the Secret that it wants, by no other, and not after
// it was dropped.
func TestObjectsAreWokenByTheirSecret(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	before := goleak.IgnoreCurrent()
	c, err := client.New(management, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	watching, err := metadata.NewForConfig(management)
	g.Expect(err).NotTo(HaveOccurred())
	create := func(name string) *corev1.Secret {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"token": []byte("1")}}
		g.Expect(c.Create(ctx, secret)).To(Succeed())
		return secret
	}
	mine := create("mine")
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	woken := func() []string {
		var names []string
		for queue.Len() > 0 {
			request, _ := queue.Get()
			queue.Done(request)
			names = append(names, request.Name)
		}
		return names
	}

	waits := NewSource(watching, "no object is woken")
	waits.Want(named("early"), named("mine")) // before the controller starts
	g.Expect(waits.Start(ctx, queue)).To(Succeed())
	waits.Want(named("late"), named("mine"))
	waits.Want(named("hopeful"), named("to-come"))
	g.Eventually(woken).Should(ContainElement("early"), "a Secret that exists before the start wakes its waiters")
	g.Expect(waits.lockedState.open).To(HaveLen(2), "one watch for each Secret")

	create("another")
	mine.Data["token"] = []byte("2")
	g.Expect(c.Update(ctx, mine)).To(Succeed())
	var names []string
	g.Eventually(func() []string { names = append(names, woken()...); return names }).Should(ContainElements("early", "late"))
	g.Expect(names).NotTo(ContainElement("hopeful"))
	create("to-come")
	g.Eventually(woken).Should(ContainElement("hopeful"))

	waits.Drop(named("early"))
	waits.Want(named("late"), named("another"))
	g.Expect(waits.lockedState.open).To(HaveLen(2))
	waits.Drop(named("late"))
	waits.Drop(named("unknown"))
	waits.Drop(named("hopeful"))
	g.Expect(waits.lockedState.open).To(BeEmpty())
	g.Eventually(func() error {
		return leaks.Find(before,
			"k8s.io/client-go/util/workqueue.(*Typed[...]).updateUnfinishedWorkLoop",
			"k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop")
	}).Should(Succeed(), "a watch ends with its last waiter")
}
