package dashboard

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/capstan-hub/capstan/hub/serving"
)

const (
	// signIns is how many attempts a client has at once, and then one each signInEvery.
	// Each attempt calls the API server; people sign in once a day.
	signIns     = 10
	signInEvery = 6 * time.Second
	// allSignIns is the same for all clients together, which can have many addresses.
	allSignIns     = 100
	allSignInEvery = 200 * time.Millisecond
	// maxClients is how many clients have a limit of their own at a time.
	maxClients = 4096
)

// signInLimiter limits sign-in attempts.
type signInLimiter struct {
	all     *rate.Limiter
	clients *serving.Limiter
}

func newSignInLimiter() *signInLimiter {
	return &signInLimiter{all: rate.NewLimiter(rate.Every(allSignInEvery), allSignIns), clients: serving.NewLimiter(signIns, signIns*signInEvery, maxClients)}
}

// allow takes an attempt of the client at a remote address; false when it has none left.
func (l *signInLimiter) allow(remote string, now time.Time) bool {
	return l.clients.Take(serving.Client(remote), now) == 0 && l.all.AllowN(now, 1)
}
