package transport

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// MaxAnswer is how many bytes of an answer are read, after decompression: of every
// answer but a watch's, and of a streamed initial list (Stream.LimitBytes). 5,000
// HelmReleases of 8 KiB are 40 MiB. A tenant who can fill a cluster must not be able
// to fill the hub.
const MaxAnswer = 64 << 20

// ErrTooLarge is the error of reading beyond MaxAnswer.
var ErrTooLarge = errors.New("the answer is larger than 64 MiB")

// catchUp is how long a watch that was resumed has to bring what it missed. An API
// server sends it right behind its answer.
const catchUp = time.Second

// Stream follows the watches of one informer, of which one is open at a time, from
// outside: what client-go keeps to itself.
type Stream struct {
	clock    clock.PassiveClock
	exceeded func()

	mu          sync.Mutex
	lockedState struct {
		open   io.Closer // nil while no watch is
		opened time.Time
		// known is up to when, for all that is known, the watches told everything.
		known    time.Time
		lastByte time.Time // the last byte
		limited  bool
		left     int64
	}
}

// NewStream makes a Stream. exceeded is called, once for each LimitBytes, when more comes
// than may; it must not block.
func NewStream(c clock.PassiveClock, exceeded func()) *Stream {
	s := &Stream{clock: c, exceeded: exceeded}
	s.lockedState.known = c.Now()
	return s
}

type streamKey struct{}

// WithStream has the watch that is made with the context followed.
func WithStream(ctx context.Context, s *Stream) context.Context {
	return context.WithValue(ctx, streamKey{}, s)
}

func streamOf(ctx context.Context) *Stream {
	s, _ := ctx.Value(streamKey{}).(*Stream)
	return s
}

// LimitBytes allows MaxAnswer bytes from now until RemoveLimit: an initial list is streamed.
func (s *Stream) LimitBytes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedState.limited, s.lockedState.left = true, MaxAnswer
}

// RemoveLimit says that the initial list is whole.
func (s *Stream) RemoveLimit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedState.limited = false
}

// Behind is for how long the watches may have missed what happened; 0 while one is
// open that has had the time to catch up. A watch that ends tells nothing from when
// its cluster was last heard of, which may be long before that is noticed.
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

// Silent is for how long the open watch has brought nothing; 0 while none is open.
func (s *Stream) Silent() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockedState.open == nil {
		return 0
	}
	return s.clock.Since(s.lockedState.lastByte)
}

// Break ends the open watch, so that it is resumed from where it was. It may wait for
// the network.
func (s *Stream) Break() {
	s.mu.Lock()
	open := s.lockedState.open
	s.lockedState.lastByte = s.clock.Now() // It is given time to resume.
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

// end of a watch, of a cluster that was last heard of at contact.
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

// read notes bytes of the open watch; false when they are too many.
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
