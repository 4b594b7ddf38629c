package publication_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/hub/annotator/publication"
	"github.com/capstan-hub/capstan/internal/hubname"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// patience with a busy machine.
const patience = 20 * time.Second

var management = controlplane.Share()

func TestMain(m *testing.M) { os.Exit(controlplane.StopShared(m.Run(), os.Stderr, management)) }

// writes counts the requests that change a ConfigMap.
type writes struct {
	next http.RoundTripper
	n    *atomic.Int64
}

func (w writes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/configmaps") {
		w.n.Add(1)
	}
	return w.next.RoundTrip(r)
}

// Each transition is one write, nothing is written in between, and a new leader replaces what its
// predecessor wrote.
func TestOneWriteForEachTransition(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	var n atomic.Int64
	config := management.Get(t).Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return writes{next, &n} })
	c, err := client.New(config, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	const namespace = "publication"
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	var state atomic.Pointer[catalogue.State]
	state.Store(&catalogue.State{Regions: []catalogue.RegionState{}})
	var compared atomic.Int64
	fake := testclock.NewFakeClock(time.Now())
	lead := func() (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		p := &publication.Publisher{
			Name:  publication.Name,
			State: func() catalogue.State { compared.Add(1); return *state.Load() }, Client: c, Namespace: namespace, Clock: fake, Logger: logr.Discard(),
		}
		go func() { ended <- p.Start(ctx) }()
		g.Eventually(fake.HasWaiters).WithTimeout(time.Minute).Should(BeTrue())
		return func() {
			cancel()
			g.Eventually(ended).WithTimeout(time.Minute).Should(Receive(BeNil()))
		}
	}
	// pass lets the Publisher compare twice: the second comparison begins when the first has ended.
	pass := func() {
		for range 2 {
			before := compared.Load()
			g.Eventually(func() int64 {
				fake.Step(publication.Interval) // Again, if the ticker of a new leader did not exist yet.
				return compared.Load()
			}, patience).Should(BeNumerically(">", before))
		}
	}
	read := func() []catalogue.RegionState {
		s, err := publication.Read(t.Context(), c, namespace, hubname.Default)
		g.Expect(err).NotTo(HaveOccurred())
		return s.Regions
	}
	stop := lead()
	pass()
	_, err = publication.Read(t.Context(), c, namespace, hubname.Default)
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "an empty state creates nothing")
	n.Store(0)
	began := time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)
	failing := catalogue.RegionState{Name: "eu-west-1", Failing: []catalogue.FailureState{{Since: began, Class: "throttled", Message: "AWS throttles"}}}
	listed := catalogue.RegionState{Name: "eu-west-1", Listed: began, Types: 812}
	for i, r := range []catalogue.RegionState{failing, listed, failing} {
		state.Store(&catalogue.State{Regions: []catalogue.RegionState{r}})
		pass()
		pass()
		g.Expect(read()).To(Equal([]catalogue.RegionState{r}))
		g.Expect(n.Load()).To(Equal(int64(i+2)), "one more, and the first one tried to update before it created")
	}
	stop()
	state.Store(&catalogue.State{Regions: []catalogue.RegionState{}})
	n.Store(0)
	stop = lead()
	pass()
	g.Expect(read()).To(BeEmpty(), "the regions of the predecessor are not those of the new leader")
	pass()
	g.Expect(n.Load()).To(Equal(int64(1)))
	stop()
}
