package dashboard

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/capstan-hub/capstan/hub/serving"
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
)

// signInLimiter bounds how often signing in is tried.
type signInLimiter struct {
	all     *rate.Limiter
	clients *serving.Limiter
}

func newSignInLimiter() *signInLimiter {
	return &signInLimiter{all: rate.NewLimiter(rate.Every(allSignInEvery), allSignIns), clients: serving.NewLimiter(signIns, signIns*signInEvery, maxClients)}
}

// allow a try of the client at a remote address.
func (l *signInLimiter) allow(remote string, now time.Time) bool {
	return l.clients.Take(serving.Client(remote), now) == 0 && l.all.AllowN(now, 1)
}
