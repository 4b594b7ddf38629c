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
// every response except a watch, and to a streamed initial list (Stream.LimitBytes). 5,000
// HelmReleases of 8 KiB are 40 MiB. The limit prevents a tenant who can fill a cluster
// from filling the hub's memory.
const MaxAnswer = 64 << 20

// ErrTooLarge is the error of a response that is larger than MaxAnswer.
var ErrTooLarge = errors.New("the answer is larger than 64 MiB")

// catchUp is the time in which a resumed watch receives the events that it missed. An API
// server sends them directly after the header of its response.
const catchUp = time.Second

// Stream observes the watches of one informer, of which one is open at a time. client-go
// does not publish this information.
type Stream struct {
	clock    clock.PassiveClock
	exceeded func()

	mu          sync.Mutex
	lockedState struct {
		open   io.Closer // nil while no watch is
		opened time.Time
		// known is the time until which the watches received every event.
		known    time.Time
		lastByte time.Time // the last byte
		limited  bool
		left     int64
	}
}

// NewStream makes a Stream. exceeded is called when more bytes are received than allowed,
// once for each LimitBytes. It must not block.
func NewStream(c clock.PassiveClock, exceeded func()) *Stream {
	s := &Stream{clock: c, exceeded: exceeded}
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

// LimitBytes allows MaxAnswer bytes from now until RemoveLimit. It is called when the
// stream of an initial list begins.
func (s *Stream) LimitBytes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedState.limited, s.lockedState.left = true, MaxAnswer
}

// RemoveLimit removes the limit. It is called when the initial list is complete.
func (s *Stream) RemoveLimit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedState.limited = false
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

// Break closes the open watch, so that it is resumed from its last event. It may wait for
// the network.
func (s *Stream) Break() {
	s.mu.Lock()
	open := s.lockedState.open
	s.lockedState.lastByte = s.clock.Now() // The next watch gets time to resume.
	s.mu.Unlock()
	if open != nil {
		_ = open.Close()
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

// read counts bytes of the open watch. It returns false when they exceed the limit.
func (s *Stream) read(n int) bool {
	s.mu.Lock()
	s.lockedState.lastByte = s.clock.Now()
	if s.lockedState.limited {
		s.lockedState.left -= int64(n)
	}
	over := s.lockedState.limited && s.lockedState.left < 0
	if over {
		s.lockedState.limited = false
	}
	s.mu.Unlock()
	if over {
		s.exceeded()
	}
	return !over
}
