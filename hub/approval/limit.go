package approval

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// DefaultRateLimit is how many calls a client may make in rateInterval (weave's).
	DefaultRateLimit = 20
	// rateInterval is weave's default, too.
	rateInterval = 30 * time.Second

	// maxClients that are remembered, some 200 bytes each. Whoever has more addresses
	// than that has as many budgets; the other bounds hold against them.
	maxClients = 10_000

	// ipv6Client is how many bits of an IPv6 address are a client: whoever has one
	// address has all of its /64.
	ipv6Client = 64
)

// limiter lets each client make so many calls in a time: at once, and then evenly.
type limiter struct {
	limit rate.Limit
	burst int

	mu            sync.Mutex // held from look-up to insertion, so that no client has two budgets
	lockedClients *lru.Cache // of *rate.Limiter, by clientOf
}

func newLimiter(calls int, interval time.Duration, clients int) *limiter {
	return &limiter{limit: rate.Every(interval / time.Duration(calls)), burst: calls, lockedClients: lru.New(clients)}
}

// take one call of a client's budget, or tell how long it has to wait for one.
func (l *limiter) take(client string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.lockedClients.Get(client)
	budget, _ := known.(*rate.Limiter)
	if !ok {
		budget = rate.NewLimiter(l.limit, l.burst)
		l.lockedClients.Add(client, budget)
	}
	reservation := budget.ReserveN(now, 1)
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now) // A refused call costs nothing.
	}
	return wait
}

// clientOf is the client of a remote address. Headers that name another
// (X-Forwarded-For) are anybody's to write and are not read.
func clientOf(remote string) string {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote // Not a TCP peer, as in a test of the handler alone.
	}
	ip := address.Addr().Unmap().WithZone("")
	if ip.Is6() {
		return netip.PrefixFrom(ip, ipv6Client).Masked().String()
	}
	return ip.String()
}
