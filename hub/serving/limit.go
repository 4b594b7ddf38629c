package serving

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// ipv6Client is how many bits of an IPv6 address are a client: whoever has one address
// has all of its /64.
const ipv6Client = 64

// Limiter lets each client make so many calls in a time: at once, and then evenly.
type Limiter struct {
	limit rate.Limit
	burst int

	// mu guards lockedClients. It is held from look-up to insertion, so that no client has two budgets.
	mu            sync.Mutex
	lockedClients *lru.Cache // of *rate.Limiter, by Client
}

// NewLimiter makes a Limiter that remembers so many clients, of some 200 bytes each: the
// least recent is forgotten. Whoever has more addresses than that has as many budgets.
func NewLimiter(calls int, interval time.Duration, clients int) *Limiter {
	return &Limiter{limit: rate.Every(interval / time.Duration(calls)), burst: calls, lockedClients: lru.New(clients)}
}

// Take one call of a client's budget, or tell how long it has to wait for one.
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
		reservation.CancelAt(now) // A refused call costs nothing.
	}
	return wait
}

// Client is the one of a remote address. Headers that name another
// (X-Forwarded-For) are anybody's to write and are not read.
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
