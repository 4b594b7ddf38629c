package hub

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/claim"
)

// runs is a manager that does nothing but what it is given.
type runs struct {
	manager.Manager

	start func(context.Context) error
}

func (r runs) Start(ctx context.Context) error { return r.start(ctx) }
func (r runs) GetLogger() logr.Logger          { return logr.Discard() }

// recordLock is a lock whose record is in memory.
type recordLock struct {
	resourcelock.Interface

	record        resourcelock.LeaderElectionRecord
	reads, writes int
	// err is the answer to every request; what it wrote is stored all the same, as by an API server whose answer is lost.
	err error
}

func (l *recordLock) Identity() string { return "this" }
func (l *recordLock) Describe() string { return "capstan-system/capstan-hub" }

func (l *recordLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.reads++
	record := l.record
	return &record, nil, l.err
}

func (l *recordLock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	l.writes++
	l.record = record
	return l.err
}

// newFakeLock returns a lock around a record in memory, with a clock that stands still.
func newFakeLock(lease time.Duration) (*leaderLock, *recordLock, *testclock.FakeClock) {
	stored, fake := &recordLock{}, testclock.NewFakeClock(time.Unix(1000, 0))
	lock := newLeaderLock(stored, lease)
	lock.clock = fake
	return lock, stored, fake
}

// Whether a process gives a lease back when its manager has ended.
func TestWhatIsGivenBack(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	mine, others := resourcelock.LeaderElectionRecord{HolderIdentity: "this", LeaderTransitions: 7}, resourcelock.LeaderElectionRecord{HolderIdentity: "another"}
	for name, c := range map[string]struct {
		// start is what leader election does.
		start         func(context.Context, *leaderLock, *recordLock) error
		holder, ended string
		reads, writes int
	}{
		"a standby requests nothing": {func(context.Context, *leaderLock, *recordLock) error { return nil }, "another", "", 0, 0},
		"a leader ends in order":     {func(ctx context.Context, l *leaderLock, _ *recordLock) error { return l.Update(ctx, mine) }, "", "", 1, 2},
		"a leader that could not renew ends": {func(ctx context.Context, l *leaderLock, _ *recordLock) error {
			return errors.Join(l.Update(ctx, mine), errors.New("leader election lost"))
		}, "", "leader election lost", 1, 2},
		"its election was not answered": {func(ctx context.Context, l *leaderLock, stored *recordLock) error {
			stored.err = context.Canceled
			_ = l.Update(ctx, mine)
			stored.err = nil
			return nil
		}, "", "", 1, 2},
		"it was given back before": {func(ctx context.Context, l *leaderLock, _ *recordLock) error {
			return errors.Join(l.Update(ctx, mine), l.Update(ctx, resourcelock.LeaderElectionRecord{}))
		}, "", "", 0, 2},
		"it was elected, gave that up and got no answer, and another process leads": {func(ctx context.Context, l *leaderLock, stored *recordLock) error {
			if err := l.Update(ctx, mine); err != nil {
				return err
			}
			stored.err = errors.New("no answer")
			_ = l.Update(ctx, resourcelock.LeaderElectionRecord{})
			stored.err, stored.record = nil, others
			_, _, err := l.Get(ctx) // It stands by.
			<-ctx.Done()
			return err
		}, "another", "", 1, 2},
		"another process leads, and this one has not read it": {func(ctx context.Context, l *leaderLock, stored *recordLock) error {
			err := l.Update(ctx, mine)
			stored.record = others
			return err
		}, "another", "", 1, 1},
		"another process leads, and this one goes on": {func(ctx context.Context, l *leaderLock, stored *recordLock) error {
			if err := l.Update(ctx, mine); err != nil {
				return err
			}
			stored.record = others
			_, _, _ = l.Get(ctx)
			<-ctx.Done()
			return nil
		}, "another", "leader election lost: another has the lease capstan-system/capstan-hub", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			stored := &recordLock{record: others}
			lock := newLeaderLock(stored, lease)
			m := leased{Manager: runs{start: func(ctx context.Context) error { return c.start(ctx, lock, stored) }}, lock: lock, cut: func() {}}
			ctx, cancel := context.WithTimeout(t.Context(), lease)
			defer cancel()
			err := m.Start(ctx)
			if c.ended == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(c.ended))
			}
			g.Expect([]any{stored.record.HolderIdentity, stored.reads, stored.writes}).To(Equal([]any{c.holder, c.reads, c.writes}))
		})
	}
}

// A renewal waits until it is due, so that a leader writes its lease less often than standbys read it.
func TestRenewals(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	lock, stored, fake := newFakeLock(DefaultLease)
	const period = DefaultLease / warmRenewals
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "this"}
	update := func(ctx context.Context, record resourcelock.LeaderElectionRecord) <-chan error {
		done := make(chan error, 1)
		go func() { done <- lock.Update(ctx, record) }()
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g.Eventually(update(ctx, mine)).Should(Receive(BeNil()), "it is elected at once")

	renewal := update(ctx, mine)
	g.Eventually(fake.HasWaiters).Should(BeTrue())
	fake.Step(period - 1)
	g.Consistently(renewal, 50*time.Millisecond).ShouldNot(Receive())
	fake.Step(1)
	g.Eventually(renewal).Should(Receive(BeNil()))
	g.Expect(stored.writes).To(Equal(2))
	g.Expect(stored.record.RenewTime.Time).To(Equal(fake.Now()), "standbys distinguish it from the one before")

	fake.Step(period)
	none := errors.New("no answer")
	stored.err = none
	for range 2 {
		g.Eventually(update(ctx, mine)).Should(Receive(MatchError(none)), "one that failed is repeated at once")
	}
	_, left := lock.held()
	g.Expect(left).To(Equal(lock.longest()-period), "what failed does not count")
	stored.err = nil
	g.Eventually(update(ctx, mine)).Should(Receive(BeNil()))
	g.Expect(stored.writes).To(Equal(5))

	renewal = update(ctx, mine)
	g.Eventually(fake.HasWaiters).Should(BeTrue())
	cancel()
	g.Eventually(renewal).Should(Receive(BeNil()), "client-go logs no error at an orderly end")
	g.Expect(stored.writes).To(Equal(5))
	g.Eventually(update(t.Context(), resourcelock.LeaderElectionRecord{})).Should(Receive(BeNil()))
	g.Expect(stored.record.HolderIdentity).To(BeEmpty(), "it is given back at once")
}

// client-go compares the times of renewals by whole seconds. What a standby does not notice must not lengthen the time of a leader.
func TestRenewalsOfAShortLease(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	lock, stored, fake := newFakeLock(5 * time.Second)
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "this", RenewTime: metav1.NewTime(fake.Now())}
	g.Expect(lock.Update(t.Context(), mine)).To(Succeed())
	renewal := make(chan error, 1)
	go func() { renewal <- lock.Update(t.Context(), mine) }()
	g.Eventually(fake.HasWaiters).Should(BeTrue())
	fake.Step(time.Second - 1)
	g.Consistently(renewal, 50*time.Millisecond).ShouldNot(Receive())
	fake.Step(1)
	g.Eventually(renewal).Should(Receive(BeNil()))
	g.Expect(stored.record.RenewTime.Unix()).To(BeNumerically(">", mine.RenewTime.Unix()))
}

// When a process checks whether its lease ends: not later than that, and not all the time while it has none.
func TestWhenTheEndOfALeaseIsChecked(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	lock, stored, fake := newFakeLock(DefaultLease)
	checked := func(over bool, next time.Duration) {
		t.Helper()
		isOver, until := lock.check()
		g.Expect([]any{isOver, until}).To(Equal([]any{over, next}))
	}
	write := func(holder string) {
		_ = lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: holder})
	}
	checked(false, lock.longest())
	stored.err = errors.New("no answer")
	write("this")
	fake.Step(time.Second)
	checked(false, lock.longest()-time.Second) // It may be elected.
	fake.Step(lock.longest())
	checked(false, lock.longest())
	stored.err = nil
	write("this")
	fake.Step(time.Second)
	checked(false, lock.longest()-time.Second)
	write("")
	checked(false, lock.longest())
	write("this")
	fake.Step(lock.longest())
	checked(true, 0)
}

// A process that is elected while it runs ends when its lease does.
func TestTheEndOfALeaseIsThatOfItsLastRenewal(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	lock, _, fake := newFakeLock(DefaultLease)
	acting, cut := context.WithCancel(t.Context())
	defer cut()
	m := leased{Manager: runs{start: func(context.Context) error { <-acting.Done(); return nil }}, lock: lock, cut: cut}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(t.Context()) }()
	// step waits for the timer of Start, so that it sees each time.
	step := func(by time.Duration) {
		g.Eventually(fake.HasWaiters).Should(BeTrue())
		fake.Step(by)
	}
	step(10 * time.Second)
	g.Expect(lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "this"})).To(Succeed())
	step(lock.longest() - 10*time.Second) // It was elected 18 s ago.
	g.Consistently(ended, 50*time.Millisecond).ShouldNot(Receive())
	step(10*time.Second - 1)
	g.Consistently(ended, 50*time.Millisecond).ShouldNot(Receive())
	step(1)
	g.Eventually(ended).Should(Receive(MatchError(ContainSubstring("was not renewed in time"))))
}

// A hub by name may wait for a namespace for longer than a lease before it writes its own: what takes the time of a write is behind that.
func TestTheTimeOfALeaseIsThatOfItsWrite(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	leases, err := coordinationclient.NewForConfig(&rest.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	s, err := newSharing(Options{LeaderElect: true, Namespaces: []string{"team-a"}, Eventing: Eventing{Name: "east"}, Registerer: prometheus.NewRegistry()})
	g.Expect(err).NotTo(HaveOccurred())
	var options manager.Options
	m := newLeased(&resourcelock.LeaseLock{Client: leases}, DefaultLease, s, &options)
	lock, is := options.LeaderElectionResourceLockInterface.(*claim.Lock)
	g.Expect(is).To(BeTrue())
	g.Expect(lock.Interface).To(BeIdenticalTo(m.lock))
	g.Expect(options.BaseContext().Err()).NotTo(HaveOccurred())
	m.cut()
	g.Expect(options.BaseContext().Err()).To(HaveOccurred(), "it ends all that the manager runs")
}

// client-go gives up before the process ends by itself, so that it can give the lease back. That is possible after the longest pause
// of the API server that test/bench measures, if there are warm standbys.
func TestALeaderHasTimeToGiveBack(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	for _, lease := range []time.Duration{15 * time.Second, DefaultLease, 2 * time.Minute} {
		lock := newLeaderLock(&recordLock{}, lease)
		for _, warm := range []bool{true, false} {
			o := Options{LeaderElectionLease: lease, WarmStandby: warm}
			request, deadline := max(lease/requestShare, leastRequest), lease*renewNumerator/renewDenominator
			g.Expect(request+o.retryPeriod()+deadline).To(BeNumerically("<", lock.longest()), "%s, warm: %t", lease, warm)
		}
		g.Expect(lock.longest()).To(BeNumerically(">", 5*lease/6+lock.between()+lease/warmRetries))
	}
}

// A leader that cannot renew its lease ends before another one may lead, whatever else is under way: everything that acts ends.
func TestALeaderEndsWithinItsLease(t *testing.T) {
	t.Parallel()
	const lease = 15 * time.Second
	for name, orderly := range map[string]bool{"it was paused": false, "its orderly end takes long": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			acting, cut := context.WithCancel(t.Context())
			defer cut()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			lock := newLeaderLock(&recordLock{}, lease)
			m := leased{Manager: runs{start: func(ctx context.Context) error {
				_ = lock.Update(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: "this"})
				<-acting.Done()
				return nil
			}}, lock: lock, cut: cut}
			if orderly {
				cancel()
			}
			began := time.Now()
			g.Expect(m.Start(ctx)).To(MatchError("leader election lost: the lease capstan-system/capstan-hub was not renewed in time"))
			g.Expect(time.Since(began)).To(And(BeNumerically(">", lease*renewNumerator/renewDenominator), BeNumerically("<", lease)))
			g.Expect(acting.Err()).To(HaveOccurred())
		})
	}
}

// A process that cannot give its lease back tries again, and ends: in order after a few seconds, else before another one may lead.
func TestGivingBackEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		orderly        bool
		lease, longest time.Duration
	}{
		"in order":  {true, time.Minute, orderlyGiveBack + 2*time.Second},
		"it failed": {false, 15 * time.Second, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			stored := &recordLock{}
			lock := newLeaderLock(stored, c.lease)
			m := leased{Manager: runs{start: func(ctx context.Context) error {
				err := lock.Update(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: "this"})
				stored.err = errors.New("no answer")
				return err
			}}, lock: lock, cut: func() {}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.orderly {
				cancel()
			}
			began := time.Now()
			g.Expect(m.Start(ctx)).To(Succeed())
			g.Expect(time.Since(began)).To(And(BeNumerically(">", c.longest/2), BeNumerically("<", c.longest)))
			g.Expect(stored.reads).To(BeNumerically(">", 2), "it tries again")
		})
	}
}
