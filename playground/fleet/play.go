package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

const (
	// pollEvery is the time between two checks, and remindEvery that between two lines
	// about a check that does not pass yet.
	pollEvery   = 100 * time.Millisecond
	remindEvery = 5 * time.Second
	// startTimeout is for the parts of the fleet, on a machine of two busy cores.
	startTimeout = time.Minute
)

// step of a story.
type step struct {
	name string
	// does and expects describe the action and its expected result.
	does, expects string
	// needs starts what this step and those after it need; nil if there is nothing. It
	// has no deadline of its own.
	needs func(context.Context) error
	// within is the whole step's deadline, far longer than it takes.
	within time.Duration
	play   func(context.Context, *stage) error
}

// outcome of a step.
type outcome struct {
	name   string
	took   time.Duration
	err    error
	played bool
}

// playAll plays the steps in order until one fails: those after it build on it.
func playAll(ctx context.Context, out io.Writer, steps []step) []outcome {
	outcomes := make([]outcome, len(steps))
	failed := false
	for i, s := range steps {
		outcomes[i].name = s.name
		if failed || ctx.Err() != nil {
			continue
		}
		if s.needs != nil {
			if err := s.needs(ctx); err != nil {
				outcomes[i].err, outcomes[i].played, failed = err, true, true
				say(out, "  ✗   %v", err)
				continue
			}
		}
		say(out, "\n%d/%d  %s\n      does:    %s\n      expects: %s", i+1, len(steps), s.name, s.does, s.expects)
		started := time.Now()
		stepCtx, cancel := context.WithTimeout(ctx, s.within)
		err := s.play(stepCtx, &stage{out: out})
		cancel()
		outcomes[i].took, outcomes[i].err, outcomes[i].played = time.Since(started), err, true
		if err != nil {
			failed = true
			say(out, "  ✗   %v", err)
		}
	}
	return outcomes
}

// verdict is nil when every step was played and none failed; otherwise it is the
// one that failed, or the first that was not played.
func verdict(outcomes []outcome) error {
	for _, o := range outcomes {
		switch {
		case o.err != nil:
			return fmt.Errorf("%s: %w", o.name, o.err)
		case !o.played:
			return fmt.Errorf("%s: %w", o.name, errNotPlayed)
		}
	}
	return nil
}

var errNotPlayed = errors.New("not played")

// say prints a line. There is no other place to report that it cannot be written.
func say(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format+"\n", args...)
}

// summary prints one line for each step.
func summary(out io.Writer, outcomes []outcome) {
	say(out, "\nSummary")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, o := range outcomes {
		switch {
		case !o.played:
			say(table, "  – %d\t%s\t%v", i+1, o.name, errNotPlayed)
		case o.err != nil:
			say(table, "  ✗ %d\t%s\t%s\t%v", i+1, o.name, seconds(o.took), o.err)
		default:
			say(table, "  ✓ %d\t%s\t%s", i+1, o.name, seconds(o.took))
		}
	}
	_ = table.Flush()
}

// stage prints what one step does and waits for.
type stage struct{ out io.Writer }

// note prints what was done or observed.
func (s *stage) note(format string, args ...any) {
	say(s.out, "      "+format, args...)
}

// await checks until the check passes or the step's deadline is over.
func (s *stage) await(ctx context.Context, what string, check func(context.Context) error) error {
	started := time.Now()
	remind := started.Add(remindEvery)
	err := poll(ctx, func(ctx context.Context) error {
		err := check(ctx)
		if err != nil && time.Now().After(remind) {
			remind = time.Now().Add(remindEvery)
			s.note("  … %s after %s: %v", what, seconds(time.Since(started)), err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: waited %s: %w", what, seconds(time.Since(started)), err)
	}
	say(s.out, "  ✓   %s  (%s)", what, seconds(time.Since(started)))
	return nil
}

// expect checks once.
func (s *stage) expect(ctx context.Context, what string, check func(context.Context) error) error {
	if err := check(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	say(s.out, "  ✓   %s", what)
	return nil
}

// eventually waits for a check without printing it.
func eventually(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, check)
}

// poll checks until the check passes. When the context ends first, the error is the last one
// of the check.
func poll(ctx context.Context, check func(context.Context) error) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		// The end of the context explains less than the error before it.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", last, ctx.Err())
		}
	}
}
