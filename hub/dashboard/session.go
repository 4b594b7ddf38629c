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
	// sessionLife is a working day, after which the token is asked for again.
	sessionLife = 12 * time.Hour
	// MinSessionKey is how many bytes a session key has at least.
	MinSessionKey = 32
	// MaxToken is how long a token may be, in bytes: sealed and encoded it fills the
	// cookies below, which together fit into a request's header.
	MaxToken = 10 << 10
	// maxCookie is what every browser keeps of one cookie, its name included; the
	// session takes up to maxCookies.
	maxCookie, maxCookies = 4000, 4
	// signedOut sessions that are remembered; each is a few dozen bytes.
	maxSignedOut = 4096

	cookiePlain = "capstan-session-"
	// cookieSecure has the prefix by which browsers let no other host set it, which
	// only TLS may use.
	cookieSecure = "__Host-capstan-session-"
)

// session is who signed in, sealed into the browser's cookies: any replica that has
// the key can read it, and none keeps it.
type session struct {
	ID    string
	Token string
	At    int64 // when it began, in seconds since 1970
}

// errNoSession is returned where there is no cookie, or none that counts.
var errNoSession = errors.New("no session")

// sealer makes sessions into cookies and back.
type sealer struct {
	seal   cipher.AEAD
	csrf   []byte
	secure bool // the cookie goes by TLS alone
	clock  clock.PassiveClock
	// ended are sessions that signed out here. It locks itself.
	ended *lru.Cache
}

// newSealer derives its keys from the one given; one that this process alone has when
// it is empty.
func newSealer(key []byte, secure bool, clock clock.PassiveClock) (*sealer, error) {
	if len(key) == 0 {
		key = make([]byte, MinSessionKey)
		_, _ = rand.Read(key) // It never fails.
	}
	if len(key) < MinSessionKey {
		return nil, fmt.Errorf("a session key has %d bytes or more, this one has %d", MinSessionKey, len(key))
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
	return &sealer{seal: seal, csrf: csrf, secure: secure, clock: clock, ended: lru.New(maxSignedOut)}, nil
}

func (s *sealer) cookieName(i int) string {
	if s.secure {
		return cookieSecure + strconv.Itoa(i)
	}
	return cookiePlain + strconv.Itoa(i)
}

// begin gives the browser a session of the token.
func (s *sealer) begin(w http.ResponseWriter, token string) error {
	encoded, err := json.Marshal(session{ID: rand.Text(), Token: token, At: s.clock.Now().Unix()})
	if err != nil {
		return err
	}
	value := base64.RawURLEncoding.EncodeToString(s.seal.Seal(nil, nil, encoded, nil))
	if len(value) > maxCookies*maxCookie {
		return fmt.Errorf("the session of a token of %d bytes does not fit into cookies", len(token))
	}
	for i := range maxCookies {
		part := value[min(len(value), i*maxCookie):min(len(value), (i+1)*maxCookie)]
		s.set(w, i, part)
	}
	return nil
}

// end takes the session from the browser; this replica takes it no more either.
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

// read the session of a request; errNoSession where there is none.
func (s *sealer) read(r *http.Request) (session, error) {
	var value strings.Builder
	for i := range maxCookies {
		cookie, err := r.Cookie(s.cookieName(i))
		if err != nil {
			break
		}
		value.WriteString(cookie.Value)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(value.String())
	if err != nil || len(sealed) == 0 {
		return session{}, errNoSession
	}
	opened, err := s.seal.Open(nil, nil, sealed, nil)
	if err != nil {
		return session{}, errNoSession // Of another key, or tampered with.
	}
	var of session
	if err := json.Unmarshal(opened, &of); err != nil {
		return session{}, errNoSession
	}
	if _, ended := s.ended.Get(of.ID); ended || s.clock.Since(time.Unix(of.At, 0)) > sessionLife {
		return session{}, errNoSession
	}
	return of, nil
}

// csrfToken of a session, for its forms.
func (s *sealer) csrfToken(of session) string {
	mac := hmac.New(sha256.New, s.csrf)
	mac.Write([]byte(of.ID))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// genuine is whether a form's token is the session's.
func (s *sealer) genuine(of session, token string) bool {
	return hmac.Equal([]byte(s.csrfToken(of)), []byte(token))
}
