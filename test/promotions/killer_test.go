package promotions_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// errKilled is the error of the calls of a killed hub.
var errKilled = errors.New("the hub was killed")

// call is one outside call of a hub.
type call struct {
	// what is the method and the kind or the path.
	what string
	// writes is true if the call may change something outside the hub.
	writes bool
	// writesBefore is the number of such calls, counted and not, that the hub made before.
	writesBefore int
}

// distinct returns the numbers, from 1, of the calls at which a kill can leave different
// states: each call that writes, and the first call of each name between two writes. A
// read between the same two writes finds and leaves the same state. All reads of the API
// server have one name, because a hub keeps nothing of them that survives it; what it
// reads from Git is in a clone on disk.
func distinct(calls []call) []int {
	var numbers []int
	seen := map[call]bool{}
	for i, c := range calls {
		if !seen[c] {
			seen[c] = true
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// killer ends a hub at one of its outside calls: before the call is made, or after it
// took effect and before its answer is received.
//
// Locking: mu guards calls, writes, dead and where.
type killer struct {
	// at is the number of the call, from 1; none when 0.
	at    int
	after bool
	// only counts requests to the service, and of those only the ones that aim selects,
	// if it is set.
	only bool
	aim  func(*http.Request) bool
	// died is called once the hub is dead, if it is set.
	died func(*killer)
	// end the context of the process with it: a dead process does not retry.
	end context.CancelFunc

	mu     sync.Mutex
	calls  []call
	writes int
	dead   bool
	// where is the request that the hub was killed at; empty for other calls.
	where string
}

// step counts a call. It returns whether the call is made, and whether its answer is
// lost.
func (k *killer) step(c call) (made, lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return false, true
	}
	c.writesBefore = k.writes
	if c.writes {
		k.writes++
	}
	k.calls = append(k.calls, c)
	if len(k.calls) != k.at {
		return true, false
	}
	k.dead = true
	return k.after, true
}

// aims returns whether a request to the service counts. A dead hub makes none.
func (k *killer) aims(r *http.Request) bool {
	return k.aim == nil || k.over() || k.aim(r)
}

// over returns whether the hub is dead.
func (k *killer) over() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead
}

// pass takes note of a call that does not count.
func (k *killer) pass(c call) {
	if c.writes {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.writes++
	}
}

func (k *killer) around(c call, do func() error) error {
	if k.only && !k.over() {
		k.pass(c)
		return do()
	}
	made, lost := k.step(c)
	if !made {
		k.end()
		return errKilled
	}
	err := do()
	if lost {
		k.end()
		return errKilled
	}
	return err
}

// requested is the call that an HTTP request makes. The smart protocol of Git reads by
// POST, too.
func requested(r *http.Request) call {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead || strings.HasSuffix(r.URL.Path, "/git-upload-pack")
	return call{what: r.Method + " " + r.URL.Path, writes: !reads}
}

// aRead is a Get or a List at the API server.
var aRead = call{what: "a read of the API server"}

func kindOf(o any) string { return strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1alpha1.") }

// process is the context of the hub that is to be killed.
func (k *killer) process(ctx context.Context) context.Context {
	ctx, k.end = context.WithCancel(ctx)
	return ctx
}

func (k *killer) client(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return k.around(aRead, func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return k.around(aRead, func() error { return c.List(ctx, l, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return k.around(call{what: "Create " + kindOf(o), writes: true}, func() error { return c.Create(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return k.around(call{what: "Patch " + sub + " of " + kindOf(o), writes: true}, func() error { return c.SubResource(sub).Patch(ctx, o, patch, opts...) })
		},
	})
}

// RoundTrip implements http.RoundTripper for the notification.
func (k *killer) RoundTrip(r *http.Request) (response *http.Response, err error) {
	err = k.around(requested(r), func() error {
		response, err = http.DefaultTransport.RoundTrip(r) //nolint:bodyclose // The caller of a RoundTripper closes it.
		return err
	})
	if err != nil && response != nil {
		_ = response.Body.Close()
		response = nil
	}
	return response, err
}
