package catalogue

import (
	"context"
	"regexp"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// mostRegions is the maximum number of kept regions. AWS has fewer than 50; users can name more.
const mostRegions = 64

// Patterns of AWS' names. Other names are not queried: a region becomes part of a host name, and
// EC2's filters accept wildcards.
var (
	regionName   = regexp.MustCompile(`^[a-z]{2,8}(-[a-z]{1,16}){1,3}-\d{1,2}$`)
	instanceName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}\.[a-z0-9-]{1,31}$`)
)

// EC2 is the Catalogue that calls EC2.
type EC2 struct {
	timings Timings
	clock   clock.WithTicker
	log     logr.Logger
	calls   *caller
	metrics *metrics

	// notify is set before Start.
	notify []func(region string)

	mu sync.Mutex
	lockedState
}

// lockedState is guarded by EC2.mu.
type lockedState struct {
	regions map[string]*region
	// run starts a region's keeper; nil before Start and after its end.
	run func(*region)
}

var _ Catalogue = &EC2{}

// New returns an empty catalogue. It answers after Start.
func New(o Options) (*EC2, error) {
	c := &EC2{
		timings:     o.Timings.orDefaults(),
		clock:       o.Clock,
		log:         o.Logger,
		lockedState: lockedState{regions: map[string]*region{}},
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	c.metrics = newMetrics(c)
	c.calls = &caller{
		config:  o.AWS,
		clients: awsconfig.NewClients(o.AWS, newClient),
		timeout: c.timings.Call,
		metrics: c.metrics,
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(c.metrics); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Notify implements Catalogue.
func (c *EC2) Notify(f func(region string)) { c.notify = append(c.notify, f) }

// Start implements manager.Runnable: it runs the keepers of the regions until ctx ends.
func (c *EC2) Start(ctx context.Context) error {
	var keepers sync.WaitGroup
	c.mu.Lock()
	c.run = func(r *region) { keepers.Go(func() { c.keep(ctx, r) }) }
	for _, r := range c.regions {
		c.run(r)
	}
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.run = nil
	c.mu.Unlock()
	keepers.Wait()
	return nil
}

// Get implements Catalogue.
func (c *EC2) Get(ctx context.Context, q Query) (Answer, error) {
	if !regionName.MatchString(q.Region) {
		return Answer{}, &Error{Class: ErrRegionUnknown, Query: q, RetryAfter: c.timings.RetryMost}
	}
	if !instanceName.MatchString(q.InstanceType) {
		return Answer{}, &Error{Class: ErrInstanceTypeUnknown, Query: q, RetryAfter: c.timings.Negative}
	}
	for {
		r := c.region(q.Region)
		answer, failure, round := r.ask(q, c.clock.Now())
		switch {
		case failure != nil:
			return Answer{}, failure
		case round == nil:
			return answer, nil
		}
		select {
		case <-round:
		case <-ctx.Done():
			if r.owe(round) {
				return Answer{}, &Error{Class: ErrPending, Query: q, Err: ctx.Err()}
			}
		}
	}
}

// region returns the region of a name, and creates it if needed.
func (c *EC2) region(name string) *region {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.regions[name]; r != nil {
		return r
	}
	if len(c.regions) >= mostRegions {
		c.forgetOneLocked()
	}
	r := newRegion(name, c.timings)
	c.regions[name] = r
	if c.run != nil {
		c.run(r)
	}
	return r
}

// forgetOneLocked removes the least recently queried region of those that never answered, or
// else of all.
func (c *EC2) forgetOneLocked() {
	var least *region
	var leastAnswered bool
	var leastAsked time.Time
	for _, r := range c.regions {
		answered, asked := r.standing()
		if least == nil || leastAnswered && !answered || leastAnswered == answered && asked.Before(leastAsked) {
			least, leastAnswered, leastAsked = r, answered, asked
		}
	}
	delete(c.regions, least.name)
	close(least.forgotten)
}

// snapshot returns the state of all regions, for metrics and State.
func (c *EC2) snapshot(now time.Time) map[string]regionSnapshot {
	c.mu.Lock()
	regions := make([]*region, 0, len(c.regions))
	for _, r := range c.regions {
		regions = append(regions, r)
	}
	c.mu.Unlock()
	all := make(map[string]regionSnapshot, len(regions))
	for _, r := range regions {
		all[r.name] = r.snapshot(now)
	}
	return all
}
