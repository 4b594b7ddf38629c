package dashboard

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// sessionLife is a working day. After it the user must sign in again.
	sessionLife = 12 * time.Hour
	// MinSessionKey is the minimum length of a session key, in bytes.
	MinSessionKey = 32
	// MaxToken is the maximum length of a token, in bytes. Encrypted and encoded it fits
	// into maxCookies cookies, which together fit into the header of a request.
	MaxToken = 10 << 10
	// maxCookie is the size of a cookie, in bytes with its name, that every browser
	// supports. A session uses up to maxCookies cookies.
	maxCookie, maxCookies = 4000, 4
	// maxSignedOut sessions that are remembered; each takes a few dozen bytes.
	maxSignedOut = 4096
	// maxRenewed sessions whose renewed tokens are remembered, each with up to 30 KiB.
	maxRenewed = 512

	cookiePlain = "capstan-session-"
	// cookieSecure has the prefix that stops other hosts from setting the cookie. Browsers
	// accept the prefix only over TLS.
	cookieSecure = "__Host-capstan-session-"
)

// session has the token of a user, encrypted in the browser's cookies. Every replica that
// has the key can read it, and no replica stores it.
type session struct {
	ID    string
	Token string
	At    int64 // when the user signed in, in seconds since 1970
	// OIDC is set when an OpenID Connect provider issued the token.
	OIDC *issued `json:",omitempty"`
}

// errNoSession is returned when a request has no valid session cookie.
var errNoSession = errors.New("no session")

// sealer encrypts sessions into cookies and decrypts them.
type sealer struct {
	seal   cipher.AEAD
	csrf   []byte
	secure bool // the cookie is sent over TLS only
	clock  clock.PassiveClock
	// ended are the sessions that signed out on this replica. It locks itself.
	ended *lru.Cache
	// renewals are those of this replica, of renewal by the ID of the session. It locks itself.
	renewals *lru.Cache
}

// newSealer derives its keys from the given key; it generates a key when that is empty.
func newSealer(key []byte, secure bool, clock clock.PassiveClock) (*sealer, error) {
	if len(key) == 0 {
		key = make([]byte, MinSessionKey)
		_, _ = rand.Read(key) // It never fails.
	}
	if len(key) < MinSessionKey {
		return nil, fmt.Errorf("the session key has %d bytes: it must have %d bytes or more", len(key), MinSessionKey)
	}
	derive := func(of string) ([]byte, error) {
		return hkdf.Key(sha256.New, key, nil, "capstan dashboard "+of, sha256.Size)
	}
	sealing, err := derive("session v1")
	if err != nil {
		return nil, err
	}
	csrf, err := derive("csrf v1")
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(sealing)
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &sealer{seal: seal, csrf: csrf, secure: secure, clock: clock, ended: lru.New(maxSignedOut), renewals: lru.New(maxRenewed)}, nil
}

func (s *sealer) cookieName(i int) string {
	if s.secure {
		return cookieSecure + strconv.Itoa(i)
	}
	return cookiePlain + strconv.Itoa(i)
}

// begin sets the cookies of a new session with the token.
func (s *sealer) begin(w http.ResponseWriter, token string) error {
	_, value, err := s.fit(session{ID: rand.Text(), Token: token, At: s.clock.Now().Unix()})
	if err == nil {
		s.put(w, value)
	}
	return err
}

// Purposes of what is sealed: a value that was sealed for one is not accepted for another.
const (
	sealedSession = "" // As it was before there were others.
	sealedAttempt = "attempt"
)

// encrypt seals a value into the text of cookies.
func (s *sealer) encrypt(purpose string, of any) (string, error) {
	encoded, err := json.Marshal(of)
	if err != nil {
		return "", fmt.Errorf("encoding a cookie: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(s.seal.Seal(nil, nil, encoded, []byte(purpose))), nil
}

// decrypt opens the text of cookies. The error is errNoSession.
func (s *sealer) decrypt(purpose, value string, into any) error {
	sealed, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || len(sealed) == 0 {
		return errNoSession
	}
	opened, err := s.seal.Open(nil, nil, sealed, []byte(purpose))
	if err != nil || json.Unmarshal(opened, into) != nil {
		return errNoSession // Encrypted with another key, or changed.
	}
	return nil
}

// fit seals a session so that it fits into the cookies: without its refresh token when there is
// no room for that.
func (s *sealer) fit(of session) (session, string, error) {
	value, err := s.encrypt(sealedSession, of)
	if err == nil && len(value) > maxCookies*maxCookie && of.OIDC != nil && of.OIDC.Refresh != "" {
		without := *of.OIDC
		without.Refresh = ""
		of.OIDC = &without
		value, err = s.encrypt(sealedSession, of)
	}
	if err == nil && len(value) > maxCookies*maxCookie {
		err = fmt.Errorf("%w: it has %d bytes", errTooLong, len(of.Token))
	}
	return of, value, err
}

// errTooLong is returned for a token that does not fit into the cookies.
var errTooLong = errors.New("the token is too long for the session cookies")

// put sets the cookies to a sealed session.
func (s *sealer) put(w http.ResponseWriter, value string) {
	for i := range maxCookies {
		part := value[min(len(value), i*maxCookie):min(len(value), (i+1)*maxCookie)]
		s.set(w, i, part)
	}
}

// end deletes the session's cookies; this replica does not accept the session any more.
func (s *sealer) end(w http.ResponseWriter, of session) {
	if of.ID != "" {
		s.ended.Add(of.ID, nil)
	}
	for i := range maxCookies {
		s.set(w, i, "")
	}
}

func (s *sealer) set(w http.ResponseWriter, i int, value string) {
	cookie := &http.Cookie{Name: s.cookieName(i), Value: value, Path: "/", Secure: s.secure, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// open returns the session in the cookies of a request; errNoSession when there is none.
func (s *sealer) open(r *http.Request) (session, error) {
	var value strings.Builder
	for i := range maxCookies {
		cookie, err := r.Cookie(s.cookieName(i))
		if err != nil {
			break
		}
		value.WriteString(cookie.Value)
	}
	var of session
	if err := s.decrypt(sealedSession, value.String(), &of); err != nil {
		return session{}, err
	}
	if _, ended := s.ended.Get(of.ID); ended || s.clock.Since(time.Unix(of.At, 0)) > sessionLife {
		return session{}, errNoSession
	}
	return of, nil
}

// read returns the session of a request, with its newest token; errNoSession when it has none.
func (s *sealer) read(r *http.Request) (session, error) {
	of, err := s.open(r)
	if err != nil {
		return session{}, err
	}
	of = s.newest(of)
	if of.OIDC != nil && s.clock.Now().Unix() >= of.OIDC.Until {
		return session{}, s.endOf(of)
	}
	return of, nil
}

// csrfToken returns the token of a session for its forms.
func (s *sealer) csrfToken(of session) string {
	mac := hmac.New(sha256.New, s.csrf)
	mac.Write([]byte(of.ID))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// genuine reports whether a form's token is that of the session.
func (s *sealer) genuine(of session, token string) bool {
	return hmac.Equal([]byte(s.csrfToken(of)), []byte(token))
}
