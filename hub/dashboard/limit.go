package dashboard

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// signIns that a client may try at once, and then one each signInEvery. Each asks
	// the API server; people sign in once a day.
	signIns     = 10
	signInEvery = 6 * time.Second
	// allSignIns is the same for all clients together, whose addresses may be many.
	allSignIns     = 100
	allSignInEvery = 200 * time.Millisecond
	// maxClients that are remembered.
	maxClients = 4096
	// ipv6Client is how many bits of an IPv6 address are a client.
	ipv6Client = 64
)

// signInLimiter bounds how often signing in is tried.
type signInLimiter struct {
	all *rate.Limiter

	mu            sync.Mutex // held from look-up to insertion, so that no client has two budgets
	lockedClients *lru.Cache // of *rate.Limiter, by network
}

func newSignInLimiter() *signInLimiter {
	return &signInLimiter{all: rate.NewLimiter(rate.Every(allSignInEvery), allSignIns), lockedClients: lru.New(maxClients)}
}

// allow a try of the client at a remote address.
func (l *signInLimiter) allow(remote string, now time.Time) bool {
	return l.of(network(remote)).AllowN(now, 1) && l.all.AllowN(now, 1)
}

func (l *signInLimiter) of(client string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.lockedClients.Get(client); ok {
		if budget, ok := known.(*rate.Limiter); ok {
			return budget
		}
	}
	budget := rate.NewLimiter(rate.Every(signInEvery), signIns)
	l.lockedClients.Add(client, budget)
	return budget
}

// network that a remote address stands for: an IPv4 address or an IPv6 /64. Headers
// that name another are not read.
func network(remote string) string {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip := address.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, ipv6Client).Masked().String()
}
