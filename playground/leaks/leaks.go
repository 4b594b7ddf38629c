// Package leaks finds goroutines that a test leaves behind.
//
// Purpose: the one list of what libraries leave and nobody here can end.
//
// Contract: what is found beyond the list is somebody's leak. A test that knows of
// more than the list, such as processes that outlive it, names that itself.
package leaks

import "go.uber.org/goleak"

// libraries are the functions of goroutines that end by themselves some time after
// their last use, or that a library leaves.
var libraries = []string{
	// Connections of a test's own clients. HTTP/2 is in three places.
	"net/http.(*persistConn).readLoop",
	"net/http.(*persistConn).writeLoop",
	"net/http.(*http2clientConnReadLoop).run",
	"net/http/internal/http2.(*clientConnReadLoop).run",
	"golang.org/x/net/http2.(*clientConnReadLoop).run",
	// controller-runtime's queue hands an item to a worker that has gone, when it is
	// shut down at the wrong moment, and its other half waits for the lock
	// (kubernetes-sigs/controller-runtime#3538).
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue.(*priorityqueue[...]).handleReadyItems",
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue.(*priorityqueue[...]).handleWaitingItems",
	// controller-runtime's cache of single namespaces waits for first lists that the stop
	// of its manager has cut short.
	"sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformer.func1",
	"sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1",
	// A NATS server in the test's process that is shut down while a client has it make a
	// stream: the store is made and nobody closes it.
	"github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop",
	"github.com/nats-io/nats-server/v2/server/ats.Register.func1",
}

// Find returns an error that names the goroutines that were not there before, but for
// those of libraries and of the other functions given. It waits a moment for them to
// end.
func Find(before goleak.Option, others ...string) error {
	options := []goleak.Option{before}
	for _, function := range append(others, libraries...) {
		options = append(options, goleak.IgnoreAnyFunction(function))
	}
	return goleak.Find(options...)
}

// T is what of a test is needed here: *testing.T, B and F are it.
type T interface {
	Helper()
	Cleanup(func())
	Error(args ...any)
}

// AtEnd fails the test if there are goroutines at its end that are not there now. It is
// called before what is to be ended is begun: of Cleanups the first comes last.
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
