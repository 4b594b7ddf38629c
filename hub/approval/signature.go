package approval

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of a signature, and where its key is.
const (
	// SignatureHeader holds <scheme>=<hex HMAC>.
	SignatureHeader = "X-Signature"
	// TimestampHeader holds the time of signing, in seconds since 1970.
	TimestampHeader = "X-Signature-Timestamp"
	// SecretKey is the key of a Secret that holds the HMAC key (weave's).
	SecretKey = "hmac-key"

	// Window is how far the time of signing may be from the hub's, either way:
	// clocks differ by seconds, and CI systems queue for a minute or two.
	Window = 5 * time.Minute

	// digestBytes of sha256 tell signatures apart, and fit into a label.
	digestBytes = 16

	// version2 is the scheme of signatures that cover the whole call.
	version2 = "v2"
)

// SignedHeaders are the headers of a signature of version 2, in the order in which
// they are shown.
var SignedHeaders = []string{SignatureHeader, TimestampHeader}

// Reasons why a signature does not hold. They are logged, never answered.
var (
	errUnsigned  = errors.New("there is not exactly one " + SignatureHeader + " header")
	errMalformed = errors.New("the " + SignatureHeader + " header is not v2=<hex HMAC-SHA256>")
	errLegacy    = errors.New("the signature is of weave's form, which --legacy-signatures lets pass; sign with version 2 instead (capstan sign)")
	errNoTime    = errors.New("the " + TimestampHeader + " header is not one time in seconds since 1970")
	errLate      = errors.New("the time of signing is more than " + Window.String() + " away from the hub's: sign each call anew, and compare the clocks")
	errMismatch  = errors.New("the HMAC is another: the key differs, or the method, path, time or body is not what was signed")
)

// legacyHashes are those that weave's signatures may name.
var legacyHashes = map[string]func() hash.Hash{
	"sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
}

// Sign returns the headers that sign a call by version 2. The path is escaped, as it
// is sent, without query.
func Sign(key []byte, method, escapedPath string, at time.Time, body []byte) http.Header {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	return http.Header{
		SignatureHeader: {version2 + "=" + hex.EncodeToString(mac(sha256.New, key, message(method, escapedPath, timestamp, body)))},
		TimestampHeader: {timestamp},
	}
}

// message is what version 2 signs: four lines without an end, of which none can hold
// a line break.
func message(method, escapedPath, timestamp string, body []byte) []byte {
	sum := sha256.Sum256(body)
	return []byte(strings.Join([]string{method, escapedPath, timestamp, hex.EncodeToString(sum[:])}, "\n"))
}

func mac(algorithm func() hash.Hash, key, message []byte) []byte {
	h := hmac.New(algorithm, key)
	h.Write(message)
	return h.Sum(nil)
}

// signature is what a call's headers hold, not compared with any key yet.
type signature struct {
	scheme    string
	mac       []byte
	timestamp string // of version 2
}

// parseSignature reads the headers. What fails here needs no key to be refused, and
// so no question to the API server.
func parseSignature(headers http.Header, legacy bool, now time.Time) (signature, error) {
	values := headers.Values(SignatureHeader)
	if len(values) != 1 {
		return signature{}, errUnsigned
	}
	scheme, digits, _ := strings.Cut(values[0], "=")
	sum, err := hex.DecodeString(digits)
	if err != nil || len(sum) == 0 {
		return signature{}, errMalformed
	}
	s := signature{scheme: scheme, mac: sum}
	if legacyHashes[scheme] != nil {
		if !legacy {
			return signature{}, errLegacy
		}
		return s, nil
	}
	if scheme != version2 {
		return signature{}, errMalformed
	}
	times := headers.Values(TimestampHeader)
	if len(times) != 1 {
		return signature{}, errNoTime
	}
	seconds, err := strconv.ParseInt(times[0], 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != times[0] {
		return signature{}, errNoTime
	}
	if at := time.Unix(seconds, 0); at.Before(now.Add(-Window)) || at.After(now.Add(Window)) {
		return signature{}, fmt.Errorf("%w (signed %s, now %s)", errLate, at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	s.timestamp = times[0]
	return s, nil
}

// check compares the signature with what the key gives, in a time that does not tell
// where they differ.
func (s signature) check(key []byte, r route, method, escapedPath string, body []byte) error {
	var want []byte
	switch {
	case s.scheme == version2:
		want = mac(sha256.New, key, message(method, escapedPath, s.timestamp, body))
	case r.endpoint == approvalEndpoint:
		want = mac(legacyHashes[s.scheme], key, nil) // Weave's approvals sign nothing.
	default:
		want = mac(legacyHashes[s.scheme], key, body)
	}
	if !hmac.Equal(want, s.mac) {
		return errMismatch
	}
	return nil
}

// digest tells one signature from another without being one; empty for weave's,
// which are all alike.
func (s signature) digest() string {
	if s.scheme != version2 {
		return ""
	}
	sum := sha256.Sum256(s.mac)
	return hex.EncodeToString(sum[:digestBytes])
}
