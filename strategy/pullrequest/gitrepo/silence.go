package gitrepo

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// errSilent is the cause of the end of a request whose server was silent.
var errSilent = errors.New("the server is silent")

// watch ends a request whose server sends nothing, and accepts nothing, for a time. It runs
// only while the hub waits for the server: not while the hub writes to the disk.
type watch struct {
	// caller is the context in which the request was made.
	caller context.Context
	limit  time.Duration
	cancel context.CancelCauseFunc

	// mu guards the fields that follow.
	mu          sync.Mutex
	lockedTimer *time.Timer
	lockedWaits bool
}

// watched returns a request that ends when its server is silent. Its watch runs already.
func watched(request *http.Request, limit time.Duration) (*watch, *http.Request) {
	caller := request.Context()
	ctx, cancel := context.WithCancelCause(caller)
	w := &watch{caller: caller, limit: limit, cancel: cancel}
	request = request.WithContext(ctx)
	if request.Body != nil {
		request.Body = &sent{ReadCloser: request.Body, watch: w}
	}
	w.wait()
	return w, request
}

// wait starts the watch.
func (w *watch) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lockedWaits = true
	if w.lockedTimer == nil {
		w.lockedTimer = time.AfterFunc(w.limit, w.silent) //nolint:forbidigo // A timeout of the network, like those of net/http.
		return
	}
	w.lockedTimer.Reset(w.limit)
}

// progress starts the time again, if the watch runs.
func (w *watch) progress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lockedWaits {
		w.lockedTimer.Reset(w.limit)
	}
}

// rest stops the watch until the next wait.
func (w *watch) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lockedWaits = false
	w.lockedTimer.Stop()
}

// end stops the watch and ends the request.
func (w *watch) end() {
	w.rest()
	w.cancel(nil)
}

// silent ends the request, unless the server was heard at this moment.
func (w *watch) silent() {
	w.mu.Lock()
	waits := w.lockedWaits
	w.mu.Unlock()
	if waits {
		w.cancel(errSilent)
	}
}

// sent is the body of a request. A server that accepts a slow upload is not silent.
type sent struct {
	io.ReadCloser
	watch *watch
}

// Read implements io.Reader.
func (s *sent) Read(p []byte) (int, error) {
	s.watch.progress()
	return s.ReadCloser.Read(p)
}
