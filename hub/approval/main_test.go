package approval

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(30 * time.Second) // The machine may be busy.
	code := m.Run()
	if plane != nil {
		if err := plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var (
	// plane is a control plane that starts for the first test that needs it: fuzzing needs
	// none, and starts this program many times.
	plane     *controlplane.ControlPlane
	plane1    sync.Once
	admin     client.Client
	errPlane  error
	worldsNow int
)

func management() (client.Client, error) {
	plane1.Do(func() {
		if plane, errPlane = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan")}); errPlane != nil {
			return
		}
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, pipelinesv1.AddToScheme, capstanv1.AddToScheme} {
			if errPlane = add(scheme); errPlane != nil {
				return
			}
		}
		admin, errPlane = client.New(plane.Config(), client.Options{Scheme: scheme})
	})
	return admin, errPlane
}

// world is a server with a real API server, in its own namespace. The test writes the statuses
// that the hub's reconcilers would write.
type world struct {
	*WithT
	t       *testing.T
	c       client.Client
	ns      string
	options Options
	// woken are the Pipelines of the hints.
	mu    sync.Mutex
	woken []types.NamespacedName
}

var key = []byte("the-key-of-the-pipeline")

func newWorld(t *testing.T) *world {
	t.Helper()
	g := NewWithT(t)
	c, err := management()
	g.Expect(err).NotTo(HaveOccurred())
	worldsNow++
	w := &world{WithT: g, t: t, c: c, ns: fmt.Sprintf("world-%d", worldsNow)}
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}})).To(Succeed())
	w.options = Options{
		BindAddress: "127.0.0.1:0", RateLimit: 1000, Client: c, Cache: c, Logger: logr.Discard(),
		Leads: func() bool { return true },
		Wake: func(key types.NamespacedName) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.woken = append(w.woken, key)
		},
	}
	w.secret("hmac", map[string][]byte{SecretKey: key})
	return w
}

func (w *world) secret(name string, data map[string][]byte) {
	w.t.Helper()
	w.Expect(w.c.Create(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Data: data})).To(Succeed())
}

// serve the handler and return its address.
func (w *world) serve() string {
	server := httptest.NewServer(New(w.options))
	w.t.Cleanup(server.Close)
	return server.URL
}

// pipeline creates a Pipeline with dev and prod, a key, and manual promotions.
func (w *world) pipeline(name string) *pipelinesv1.Pipeline {
	w.t.Helper()
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: pipelinesv1.PipelineSpec{
			AppRef: pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Environments: []pipelinesv1.Environment{
				{Name: "dev", Targets: []pipelinesv1.Target{{Namespace: "shop"}}},
				{Name: "prod", Targets: []pipelinesv1.Target{{Namespace: "shop"}}},
			},
			Promotion: &pipelinesv1.Promotion{Manual: true, Strategy: pipelinesv1.Strategy{
				Notification: &pipelinesv1.NotificationPromotion{}, SecretRef: &pipelinesv1.LocalObjectReference{Name: "hmac"},
			}},
		},
	}
	w.Expect(w.c.Create(w.t.Context(), p)).To(Succeed())
	return p
}

// promotion creates a Promotion into prod, as hub/pipeline does.
func (w *world) promotion(p *pipelinesv1.Pipeline, number int64, revision string, status capstanv1.PromotionStatus, edit ...func(*capstanv1.PromotionSpec)) *capstanv1.Promotion {
	w.t.Helper()
	promotion := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: fmt.Sprintf("%s-prod-%d", p.Name, number),
			Labels: map[string]string{capstanv1.PipelineUIDLabel: string(p.UID)},
		},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: p.Name, UID: p.UID}, App: p.Spec.AppRef, Environment: "prod", Number: number,
			Revision: revision, Source: capstanv1.PromotionSource{Environment: "dev", Sequence: number}, Strategy: p.Spec.Promotion.Strategy, Manual: true,
		},
	}
	for _, e := range edit {
		e(&promotion.Spec)
	}
	w.Expect(w.c.Create(w.t.Context(), promotion)).To(Succeed())
	promotion.Status = status
	w.Expect(w.c.Status().Update(w.t.Context(), promotion)).To(Succeed())
	return promotion
}

// becomes writes a status when the spec has the approval, as hub/promotion does. The test waits
// for it at its end.
func (w *world) becomes(p *capstanv1.Promotion, status capstanv1.PromotionStatus) {
	done := make(chan error, 1)
	ctx := w.t.Context()
	go func() {
		done <- func() error {
			for ctx.Err() == nil {
				now := &capstanv1.Promotion{}
				if err := w.c.Get(ctx, client.ObjectKeyFromObject(p), now); err != nil {
					return err
				}
				if now.Spec.Approval != nil {
					now.Status = status
					return w.c.Status().Update(ctx, now)
				}
			}
			return ctx.Err()
		}()
	}()
	w.t.Cleanup(func() {
		if err := <-done; err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
	})
}

type answer struct {
	Code           int
	Body, Location string
}

func (w *world) post(url, path string, headers http.Header, body string) answer {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, url+path, strings.NewReader(body))
	w.Expect(err).NotTo(HaveOccurred())
	request.Header = headers.Clone()
	response, err := http.DefaultClient.Do(request)
	w.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	w.Expect(err).NotTo(HaveOccurred())
	return answer{response.StatusCode, string(said), response.Header.Get("Location")}
}

// approve a revision into prod of a Pipeline.
func (w *world) approve(url, pipeline, revision string) answer {
	w.t.Helper()
	path := ApprovalPath(w.ns, pipeline, "prod", revision)
	return w.post(url, path, Sign(key, http.MethodPost, path, time.Now(), nil), "")
}

// verifyNone checks that no goroutine is left after the test and everything that it started
// have ended. Idle connections of the tests' own clients are no leak.
func verifyNone(t *testing.T) {
	leaks.AtEnd(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
}

// started runs a server until the test ends, and returns a function that ends it earlier.
func started(t *testing.T, s *Server) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return stop
}
