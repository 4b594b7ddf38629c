// Package leaks finds goroutines that tests leave running.
//
// Purpose: it holds the only list of goroutines that libraries leave and that tests
// cannot end.
//
// Contract: Main checks a whole package, after its last test. Tests of such a package
// may run in parallel. AtEnd checks one test, which must not be parallel, because the
// goroutines of other tests would be reported. A package whose tests are parallel keeps
// at least one test with AtEnd for each thing that is started and stopped: Main does not
// see a goroutine that ends late but before the last test. FindAll, VerifyNone and MainAll
// do not ignore goroutines of libraries: they are for tests that check those, too, such as
// that connections are closed. All of them wait for goroutines that are about to end.
//
// Trade-offs: Main names the goroutine and where it was created, but not the test that
// left it. `go test -run` with fewer tests finds the test.
package leaks

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// libraries are functions of goroutines that libraries leave, or that end some time
// after their last use.
var libraries = []string{
	// Connections of the HTTP clients of a test. HTTP/2 is in three places.
	"net/http.(*persistConn).readLoop",
	"net/http.(*persistConn).writeLoop",
	"net/http.(*http2clientConnReadLoop).run",
	"net/http/internal/http2.(*clientConnReadLoop).run",
	"golang.org/x/net/http2.(*clientConnReadLoop).run",
	// The multi-namespace cache of controller-runtime waits for first lists that the stop of
	// its manager has interrupted.
	"sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformer.func1",
	"sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1",
	// A NATS server in the process of the test that is stopped while a client creates a
	// stream: the server creates the store and never closes it.
	"github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop",
	"github.com/nats-io/nats-server/v2/server/ats.Register.func1",
}

// patience is the time within which goroutines must end. On a busy machine, some end later
// than goleak waits for them (0.4 s). A test without a leak does not wait.
const patience = 15 * time.Second

// FindAll returns an error that names the goroutines that run, except those that the options
// ignore, if they have not ended after patience.
func FindAll(options ...goleak.Option) error {
	for began := time.Now(); ; {
		err := goleak.Find(options...)
		if err == nil || time.Since(began) > patience {
			return err
		}
	}
}

// Find is FindAll for the goroutines that were not running when before was taken. It ignores
// the goroutines of libraries and those of the other functions given.
func Find(before goleak.Option, others ...string) error {
	options := []goleak.Option{before}
	for _, function := range append(others, libraries...) {
		options = append(options, goleak.IgnoreAnyFunction(function))
	}
	return FindAll(options...)
}

// T is the part of a test that AtEnd and VerifyNone use. *testing.T, *testing.B and *testing.F
// implement it.
type T interface {
	Helper()
	Cleanup(func())
	Error(args ...any)
}

// AtEnd fails the test if goroutines run at its end that do not run now. Call it before
// the test starts anything: cleanups run in the reverse order.
func AtEnd(t T, others ...string) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		t.Helper()
		if err := Find(before, others...); err != nil {
			t.Error(err)
		}
	})
}

// VerifyNone fails the test if FindAll returns an error. Defer it.
func VerifyNone(t T, options ...goleak.Option) {
	t.Helper()
	if err := FindAll(options...); err != nil {
		t.Error(err)
	}
}

// Main calls run, for TestMain, and returns its exit code. Run calls the tests of a
// package and then stops what they share, such as control planes. Main returns 1 and
// writes the goroutines to standard error if run returned 0 and goroutines are left.
func Main(run func() int, others ...string) int {
	before := goleak.IgnoreCurrent()
	return checked(run(), func() error { return Find(before, others...) })
}

// MainAll is Main with FindAll.
func MainAll(run func() int, options ...goleak.Option) int {
	return checked(run(), func() error { return FindAll(options...) })
}

func checked(code int, find func() error) int {
	if code != 0 {
		return code
	}
	if err := find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
