package secretwatch

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Scope is what one watch covers.
type Scope int

const (
	// ByNamespace watches all Secrets of a namespace.
	ByNamespace Scope = iota
	// ByName watches one Secret.
	ByName
)

// Options of Watches.
type Options[W comparable] struct {
	// Client of the cluster that holds the Secrets; nothing is watched when nil.
	Client metadata.Interface
	Scope  Scope
	// Wake is called after a change of the Secret that a waiter wants, with no lock held.
	// It must not block.
	Wake func(W)
	// WakeWhenListed also wakes each waiter when the first list of its watch is complete:
	// from then on it is known when its Secret does not exist.
	WakeWhenListed bool
	// Consequence is logged when a watch fails. It says what does not work and how to fix it.
	Consequence string
	// Logger; that of the context of Start when it has no sink.
	Logger logr.Logger
}

// Watches of the Secrets that waiters want.
type Watches[W comparable] struct {
	options    Options[W]
	goroutines sync.WaitGroup

	mu          sync.Mutex
	lockedState state[W]
}

type state[W comparable] struct {
	// ctx is that of Start; nil before.
	ctx context.Context //nolint:containedctx // The watches end with it.
	// wanted: waiter → its Secret; waiters the reverse.
	wanted  map[W]types.NamespacedName
	waiters map[types.NamespacedName]map[W]struct{}
	open    map[target]*watch
}

// target is what a watch covers; an empty name means a whole namespace.
type target types.NamespacedName

// watch is one watch.
type watch struct {
	informer cache.SharedIndexInformer
	synced   cache.DoneChecker
	// waiters counts them.
	waiters int
	// stop is nil until the watch runs.
	stop context.CancelFunc
}

// New makes Watches. It makes no call.
func New[W comparable](o Options[W]) *Watches[W] {
	return &Watches[W]{options: o, lockedState: state[W]{
		wanted:  map[W]types.NamespacedName{},
		waiters: map[types.NamespacedName]map[W]struct{}{},
		open:    map[target]*watch{},
	}}
}

// Start starts the watches, which run until the context ends. It returns at once. Watches
// start once.
func (w *Watches[W]) Start(ctx context.Context) {
	if w.options.Logger.GetSink() == nil {
		w.options.Logger = log.FromContext(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lockedState.ctx = ctx
	for at, one := range w.lockedState.open {
		w.runLocked(at, one)
	}
}

// Wait waits for the goroutines, after the context of Start has ended. Want must not be
// called any more.
func (w *Watches[W]) Wait() { w.goroutines.Wait() }

// Want sets the Secret that a waiter is woken for. It replaces an earlier one. Idempotent.
func (w *Watches[W]) Want(waiter W, secret types.NamespacedName) {
	if w.options.Client == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.lockedState
	if s.wanted[waiter] == secret {
		return
	}
	w.dropLocked(waiter)
	s.wanted[waiter] = secret
	if s.waiters[secret] == nil {
		s.waiters[secret] = map[W]struct{}{}
	}
	s.waiters[secret][waiter] = struct{}{}
	at := w.target(secret)
	one := s.open[at]
	if one == nil {
		one = newWatch(w.options.Client, at)
		s.open[at] = one
		w.runLocked(at, one)
	}
	one.waiters++
}

// Drop removes a waiter. Idempotent.
func (w *Watches[W]) Drop(waiter W) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropLocked(waiter)
}

func (w *Watches[W]) dropLocked(waiter W) {
	s := &w.lockedState
	secret, ok := s.wanted[waiter]
	if !ok {
		return
	}
	delete(s.wanted, waiter)
	delete(s.waiters[secret], waiter)
	if len(s.waiters[secret]) == 0 {
		delete(s.waiters, secret)
	}
	at := w.target(secret)
	one := s.open[at]
	one.waiters--
	if one.waiters > 0 {
		return
	}
	delete(s.open, at)
	if one.stop != nil {
		one.stop()
	}
}

// Version returns the resourceVersion of a wanted Secret, "" if the Secret does not exist.
// known is false until the first list of its watch is complete.
func (w *Watches[W]) Version(secret types.NamespacedName) (version string, known bool) {
	one := w.watchOf(secret)
	if one == nil || !cache.IsDone(one.synced) {
		return "", false
	}
	return one.version(secret)
}

func (w *Watches[W]) watchOf(secret types.NamespacedName) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lockedState.open[w.target(secret)]
}

// target is what the watch of a Secret covers.
func (w *Watches[W]) target(secret types.NamespacedName) target {
	if w.options.Scope == ByNamespace {
		secret.Name = ""
	}
	return target(secret)
}

// runLocked starts a watch, if the Watches have started. It never waits.
func (w *Watches[W]) runLocked(at target, one *watch) {
	if w.lockedState.ctx == nil {
		return
	}
	ctx, cancel := context.WithCancel(w.lockedState.ctx)
	one.stop = cancel
	w.goroutines.Go(func() {
		defer cancel()
		w.run(ctx, at, one)
	})
}

// waitersOf returns the waiters of a Secret.
func (w *Watches[W]) waitersOf(secret types.NamespacedName) []W {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.lockedState.waiters[secret]))
}

// waitersIn returns the waiters of all Secrets that a watch covers.
func (w *Watches[W]) waitersIn(at target) []W {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []W
	for waiter, secret := range w.lockedState.wanted {
		if w.target(secret) == at {
			found = append(found, waiter)
		}
	}
	return found
}
