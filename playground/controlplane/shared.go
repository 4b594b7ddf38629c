package controlplane

import (
	"fmt"
	"io"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// T is what of a test is needed here: *testing.T, B and F are it.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Shared is a control plane that the tests of a package share. It is started when one
// first needs it: to run a single test, or to fuzz, may need none.
type Shared struct {
	crds []string

	once    sync.Once
	running *ControlPlane
	err     error
	// installing serialises installations: two of one CRD would both create it.
	installing sync.Mutex
}

// Share a control plane with the CRDs of the named products, as CRDs has them.
func Share(products ...string) *Shared { return &Shared{crds: CRDs(products...)} }

// Get it. The test ends if it cannot be started.
func (s *Shared) Get(t T) *ControlPlane {
	t.Helper()
	s.once.Do(func() { s.running, s.err = Start(Options{CRDs: s.crds}) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.running
}

// Install the CRDs of more products.
func (s *Shared) Install(t T, products ...string) {
	t.Helper()
	plane := s.Get(t)
	s.installing.Lock()
	defer s.installing.Unlock()
	_, err := envtest.InstallCRDs(plane.Config(), envtest.CRDInstallOptions{Paths: CRDs(products...), ErrorIfPathMissing: true})
	if err != nil {
		t.Fatal(err)
	}
}

// StopShared ends those that were started, for a TestMain. It returns the exit code of
// its tests, or another that is not zero if one cannot be ended, which it tells.
func StopShared(code int, tell io.Writer, all ...*Shared) int {
	for _, s := range all {
		if s.running == nil {
			continue
		}
		if err := s.running.Stop(); err != nil {
			_, _ = fmt.Fprintln(tell, err) // There is nowhere else to tell it.
			code = max(code, 1)
		}
	}
	return code
}
