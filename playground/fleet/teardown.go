package fleet

import (
	"context"
	"errors"
	"fmt"
)

// teardown has the functions that stop what was started; the last one runs first.
type teardown []func() error

func (t *teardown) add(undo func() error) { *t = append(*t, undo) }

func (t *teardown) all() error {
	var errs []error
	for i := len(*t) - 1; i >= 0; i-- {
		errs = append(errs, (*t)[i]())
	}
	*t = nil
	return errors.Join(errs...)
}

// parts are what runs inside this process: each has a goroutine, which the teardown ends.
// A part that ends by itself breaks the fleet.
type parts struct {
	broken context.CancelCauseFunc
	down   *teardown
}

// nested parts end at the place in the teardown where nested is called, also those that
// start later.
func (p *parts) nested() *parts {
	later := &teardown{}
	p.down.add(later.all)
	return &parts{broken: p.broken, down: later}
}

func (p *parts) start(name string, run func(context.Context) error) {
	// The teardown ends the part, in its order; the end of the caller's context does not.
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := run(ctx)
		if ctx.Err() == nil {
			p.broken(fmt.Errorf("%s ended by itself: %w", name, errors.Join(err, errEnded)))
		}
		ended <- err
	}()
	p.down.add(func() error {
		stop()
		if err := <-ended; err != nil {
			return fmt.Errorf("stopping %s: %w", name, err)
		}
		return nil
	})
}

var errEnded = errors.New("it must run until the fleet stops")
