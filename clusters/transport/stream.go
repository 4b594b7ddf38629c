package transport

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// MaxAnswer is the largest size of a response in bytes, after decompression. It applies to
// every response except a watch, unless WithMaxAnswer permits another size. The limit prevents
// a tenant who can fill a cluster from filling the hub's memory.
const MaxAnswer = 64 << 20

// ErrTooLarge is the error of a response that is larger than permitted.
var ErrTooLarge = errors.New("the answer is too large")

type maxAnswerKey struct{}

// WithMaxAnswer returns a context for a request whose response may have a number of bytes. The
// caller reads it piece by piece, and limits what it keeps.
func WithMaxAnswer(ctx context.Context, most int64) context.Context {
	return context.WithValue(ctx, maxAnswerKey{}, most)
}

func maxAnswerOf(ctx context.Context) int64 {
	if most, ok := ctx.Value(maxAnswerKey{}).(int64); ok {
		return most
	}
	return MaxAnswer
}

// catchUp is the time in which a resumed watch receives the events that it missed. An API
// server has them before it sends the header of its response, and sends them directly after it.
const catchUp = 200 * time.Millisecond

// Stream observes the watches of one informer, of which one is open at a time. client-go
// does not publish this information.
type Stream struct {
	clock clock.PassiveClock

	mu          sync.Mutex
	lockedState struct {
		open   io.Closer // nil while no watch is
		opened time.Time
		// known is the time until which the watches received every event.
		known    time.Time
		lastByte time.Time // the last byte
	}
}

// NewStream makes a Stream.
func NewStream(c clock.PassiveClock) *Stream {
	s := &Stream{clock: c}
	s.lockedState.known = c.Now()
	return s
}

type streamKey struct{}

// WithStream returns a context for a watch that the Stream observes.
func WithStream(ctx context.Context, s *Stream) context.Context {
	return context.WithValue(ctx, streamKey{}, s)
}

func streamOf(ctx context.Context) *Stream {
	s, _ := ctx.Value(streamKey{}).(*Stream)
	return s
}

// Behind returns for how long the watches may have missed events. It is 0 while a watch is
// open that had the time to catch up. After the end of a watch it counts from the last
// contact with the cluster, which may be long before the end was noticed.
func (s *Stream) Behind() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.caughtUpLocked() {
		return 0
	}
	return s.clock.Since(s.lockedState.known)
}

func (s *Stream) caughtUpLocked() bool {
	return s.lockedState.open != nil && s.clock.Since(s.lockedState.opened) >= catchUp
}

// Silent returns the time since the open watch last received bytes; 0 while none is open.
func (s *Stream) Silent() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockedState.open == nil {
		return 0
	}
	return s.clock.Since(s.lockedState.lastByte)
}

// Break gives the next watch time to resume from the last event, and returns what closes the
// open one; that may wait for the network. Silent counts from now on.
func (s *Stream) Break() (closeOpen func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.lockedState.open
	s.lockedState.lastByte = s.clock.Now()
	return func() {
		if open != nil {
			_ = open.Close()
		}
	}
}

func (s *Stream) begin(watch io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.lockedState.open, s.lockedState.opened, s.lockedState.lastByte = watch, now, now
}

// end records the end of a watch. contact is the last contact with the cluster.
func (s *Stream) end(watch io.Closer, contact time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockedState.open != watch {
		return
	}
	if s.caughtUpLocked() {
		s.lockedState.known = contact
	}
	s.lockedState.open = nil
}

// noteByte records that the open watch received bytes.
func (s *Stream) noteByte() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedState.lastByte = s.clock.Now()
}
