package aws

import (
	"crypto/rand"
	"net/http"
	"strings"
	"time"
)

// The simulated account, and its root's keys, which are not valid in AWS.
const (
	Account         = "111122223333"
	RootARN         = "arn:aws:iam::" + Account + ":root"
	AccessKeyID     = "AKIAPLAYGROUND"
	SecretAccessKey = "playground"
	// HomeRegion is the default region.
	HomeRegion = "us-east-1"
)

// Session has credentials: of an assumed role, or the keys of an identity, which do not
// expire.
type Session struct {
	AccessKeyID, SecretAccessKey, Token string
	// ARN of the session or identity.
	ARN string
	// Expires is zero if the credentials do not expire.
	Expires time.Time
}

// AddKey returns a new access key of an identity: the root of an account, a user or a role.
// The account exists as soon as it has a key. The key does not expire.
func (s *Server) AddKey(arn string) Session {
	key := Session{AccessKeyID: "AKIA" + rand.Text(), SecretAccessKey: rand.Text(), ARN: arn}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[key.AccessKeyID] = key
	return key
}

// RootOf returns the ARN of the root of an account.
func RootOf(account string) string { return "arn:aws:iam::" + account + ":root" }

// AccountOf returns the account in an ARN; empty if there is none.
func AccountOf(arn string) string {
	const account, parts = 4, 6
	if all := strings.SplitN(arn, ":", parts); len(all) == parts {
		return all[account]
	}
	return ""
}

// Issue returns a new session with a lifetime.
func (s *Server) Issue(arn string, lasts time.Duration) Session {
	session := Session{
		AccessKeyID: "ASIA" + rand.Text(), SecretAccessKey: rand.Text(), Token: rand.Text(),
		ARN: arn, Expires: s.clock.Now().Add(lasts),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[session.AccessKeyID] = session
	return session
}

// identify returns the caller of a signed request.
func (s *Server) identify(r *http.Request, keyID string) (arn string, fault *Fault) {
	if keyID == AccessKeyID {
		return RootARN, nil
	}
	s.mu.Lock()
	session, known := s.sessions[keyID]
	s.mu.Unlock()
	switch {
	case !known || session.Token != r.Header.Get("X-Amz-Security-Token"):
		return "", &AuthFailure
	case !session.Expires.IsZero() && !s.clock.Now().Before(session.Expires):
		return "", &Fault{Status: http.StatusBadRequest, Code: "RequestExpired", Message: "Request has expired."}
	}
	return session.ARN, nil
}

// scope returns the access key, the region and the service of a signature. The header is
// AWS4-HMAC-SHA256 Credential=<key>/<date>/<region>/<service>/aws4_request, ...
func scope(r *http.Request) (keyID, region, service string, signed bool) {
	_, credential, found := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	if !found {
		return "", "", "", false
	}
	credential, _, _ = strings.Cut(credential, ",")
	parts := strings.Split(credential, "/")
	if len(parts) != 5 {
		return "", "", "", false
	}
	return parts[0], parts[2], parts[3], true
}
