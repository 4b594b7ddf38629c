package serving

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// ipv6Client is the length, in bits, of the prefix that identifies an IPv6 client: the
// owner of one address usually has the whole /64.
const ipv6Client = 64

// Limiter allows each client a burst of calls, and then an even rate of calls.
type Limiter struct {
	limit rate.Limit
	burst int

	// mu guards lockedClients. It is held from look-up to insertion, so that a client never
	// has two budgets.
	mu            sync.Mutex
	lockedClients *lru.Cache // of *rate.Limiter, by Client
}

// NewLimiter returns a Limiter that allows each client a number of calls in an interval.
// It remembers a number of clients, about 200 bytes each, and removes the least recent
// one. A client with more addresses than that gets a new budget for each.
func NewLimiter(calls int, interval time.Duration, clients int) *Limiter {
	return &Limiter{limit: rate.Every(interval / time.Duration(calls)), burst: calls, lockedClients: lru.New(clients)}
}

// Take takes one call from a client's budget. It returns 0, or the time until a call is
// allowed.
func (l *Limiter) Take(client string, now time.Time) time.Duration {
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
		reservation.CancelAt(now) // A refused call uses no budget.
	}
	return wait
}

// Client returns the client of a remote address. It does not read headers such as
// X-Forwarded-For, because every client can set them.
func Client(remote string) string {
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
