package controlplane

import (
	"fmt"
	"io"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// T is the part of a test that this package uses. *testing.T, *testing.B and *testing.F
// implement it.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Shared is a control plane that the tests of a package share. It starts when a test first needs
// it, because a single test or fuzzing may need none.
type Shared struct {
	crds []string

	once    sync.Once
	running *ControlPlane
	err     error
	// installing serialises installations: two of the same CRD would both create it.
	installing sync.Mutex
}

// Share returns a Shared with the CRDs of products, as in CRDs.
func Share(products ...string) *Shared { return &Shared{crds: CRDs(products...)} }

// Get returns the control plane. The test fails if it cannot be started.
func (s *Shared) Get(t T) *ControlPlane {
	t.Helper()
	s.once.Do(func() { s.running, s.err = Start(Options{CRDs: s.crds}) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.running
}

// Install adds the CRDs of more products.
func (s *Shared) Install(t T, products ...string) {
	t.Helper()
	plane := s.Get(t)
	s.installing.Lock()
	defer s.installing.Unlock()
	_, err := envtest.InstallCRDs(plane.Config(), envtest.CRDInstallOptions{Paths: CRDs(products...), ErrorIfPathMissing: true, MaxTime: startTimeout})
	if err != nil {
		t.Fatal(err)
	}
}

// StopShared stops the started control planes, for a TestMain. It returns the exit code of the
// tests. If one cannot be stopped, it writes the error to out and returns at least 1.
func StopShared(code int, out io.Writer, all ...*Shared) int {
	for _, s := range all {
		if s.running == nil {
			continue
		}
		if err := s.running.Stop(); err != nil {
			_, _ = fmt.Fprintln(out, err) // If this fails, the exit code still shows the error.
			code = max(code, 1)
		}
	}
	return code
}
