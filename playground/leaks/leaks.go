// Package leaks finds goroutines that tests leave running.
//
// Purpose: it holds the only list of goroutines that libraries leave and that tests
// cannot end.
//
// Contract: Main checks a whole package, after its last test. Tests of such a package
// may run in parallel. AtEnd checks one test, which must not be parallel, because the
// goroutines of other tests would be reported. A package whose tests are parallel keeps
// at least one test with AtEnd for each thing that is started and stopped: Main does not
// see a goroutine that ends late but before the last test.
//
// Trade-offs: Main names the goroutine and where it was created, but not the test that
// left it. `go test -run` with fewer tests finds the test.
package leaks

import (
	"fmt"
	"os"

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

// Find returns an error that names the goroutines that are running now and were not
// running when before was taken. It ignores the goroutines of libraries and those of
// the other functions given. It retries for a moment until they have ended.
func Find(before goleak.Option, others ...string) error {
	options := []goleak.Option{before}
	for _, function := range append(others, libraries...) {
		options = append(options, goleak.IgnoreAnyFunction(function))
	}
	return goleak.Find(options...)
}

// T is the part of a test that AtEnd uses. *testing.T, *testing.B and *testing.F
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

// Main calls run, for TestMain, and returns its exit code. Run calls the tests of a
// package and then stops what they share, such as control planes. Main returns 1 and
// writes the goroutines to standard error if run returned 0 and goroutines are left.
func Main(run func() int, others ...string) int {
	before := goleak.IgnoreCurrent()
	code := run()
	if code != 0 {
		return code
	}
	if err := Find(before, others...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
