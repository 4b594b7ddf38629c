package dashboard

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// reviewFor is how long an accepted token is cached: the sessions of a revoked token
	// end at most this much later.
	reviewFor = time.Minute
	// maxReviewed tokens are cached, as hashes.
	maxReviewed = 1024
)

// tokenRejected is the text of errNotAuthenticated, for users.
const tokenRejected = "token was rejected: mistyped, expired, revoked or from another cluster"

// errNotAuthenticated is returned for a token that the API server does not accept.
var errNotAuthenticated = errors.New("the " + tokenRejected)

// reviewer returns the users of tokens, by TokenReviews, and caches them.
type reviewer struct {
	client client.Client
	clock  clock.PassiveClock
	known  *lru.Cache // of reviewed, by the token's SHA-256; it locks itself
	asking singleflight.Group
}

type reviewed struct {
	user authenticationv1.UserInfo
	at   time.Time
}

func newReviewer(c client.Client, clock clock.PassiveClock) *reviewer {
	return &reviewer{client: c, clock: clock, known: lru.New(maxReviewed)}
}

// review returns the user of a token. The error is errNotAuthenticated for a token that
// the API server does not accept; any other error is that of the call.
func (r *reviewer) review(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	hash := sha256.Sum256([]byte(token))
	if user, ok := r.cached(hash); ok {
		return user, nil
	}
	// Many tabs of one session send requests at once.
	answer, err, _ := r.asking.Do(string(hash[:]), func() (any, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		// The first request may be cancelled; the others wait for the same result.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		if err := r.client.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("reviewing a token: %w", err)
		}
		if !review.Status.Authenticated || review.Status.User.Username == "" {
			r.known.Remove(hash)
			return nil, errNotAuthenticated
		}
		r.known.Add(hash, reviewed{review.Status.User, r.clock.Now()})
		return review.Status.User, nil
	})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	user, _ := answer.(authenticationv1.UserInfo)
	return user, nil
}

// accepted reports whether a token was accepted in the last minute, so that its review calls no API server.
func (r *reviewer) accepted(token string) bool {
	_, ok := r.cached(sha256.Sum256([]byte(token)))
	return ok
}

// cached returns the user of a token that was accepted in the last minute, by the hash of the token.
func (r *reviewer) cached(hash [sha256.Size]byte) (authenticationv1.UserInfo, bool) {
	known, _ := r.known.Get(hash)
	k, ok := known.(reviewed)
	if !ok || r.clock.Since(k.at) >= reviewFor {
		return authenticationv1.UserInfo{}, false
	}
	return k.user, true
}
