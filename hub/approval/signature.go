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

// Headers of a signature, and the location of its key.
const (
	// SignatureHeader has the value <scheme>=<hex HMAC>.
	SignatureHeader = "X-Signature"
	// TimestampHeader has the time of signing, in seconds since 1970.
	TimestampHeader = "X-Signature-Timestamp"
	// SecretKey is the key in a Secret for the HMAC key (the same as weave's).
	SecretKey = "hmac-key"
	// PreviousSecretKey is the key in a Secret for the HMAC key before a rotation. It is
	// accepted, too, until it is removed from the Secret.
	PreviousSecretKey = "hmac-key-previous"

	// Window is how much the time of signing may differ from the hub's clock, in both
	// directions: clocks differ by seconds, and CI systems queue for a minute or two.
	Window = 5 * time.Minute

	// digestBytes of SHA-256 distinguish signatures, and fit into a label.
	digestBytes = 16

	// version2 is the scheme of signatures that cover the whole call.
	version2 = "v2"
)

// SignedHeaders are the headers of a signature of version 2, in display order.
var SignedHeaders = []string{SignatureHeader, TimestampHeader}

// Reasons why a signature is not valid. They are logged and never part of the answer.
var (
	errUnsigned  = errors.New("the call must have exactly one header " + SignatureHeader)
	errMalformed = errors.New("the header " + SignatureHeader + " must be v2=<hex HMAC-SHA256>")
	errLegacy    = errors.New("the signature has weave's form, which needs --legacy-signatures; sign with version 2 instead (capstan sign)")
	errNoTime    = errors.New("the call must have exactly one header " + TimestampHeader + " with a time in seconds since 1970")
	errLate      = errors.New("the time of signing differs by more than " + Window.String() + " from the hub's clock: sign each call again, and compare the clocks")
	errMismatch  = errors.New("the HMAC does not match: the key differs, or the method, path, time or body was changed after signing")
)

// legacyHashes are the algorithms of weave's signatures.
var legacyHashes = map[string]func() hash.Hash{
	"sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
}

// Sign returns the headers that sign a call with version 2. The path is escaped as in the
// request, without the query.
func Sign(key []byte, method, escapedPath string, at time.Time, body []byte) http.Header {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	return http.Header{
		SignatureHeader: {version2 + "=" + hex.EncodeToString(mac(sha256.New, key, message(method, escapedPath, timestamp, body)))},
		TimestampHeader: {timestamp},
	}
}

// message returns the bytes that version 2 signs: four lines without a final line break. No
// line can contain a line break.
func message(method, escapedPath, timestamp string, body []byte) []byte {
	sum := sha256.Sum256(body)
	return []byte(strings.Join([]string{method, escapedPath, timestamp, hex.EncodeToString(sum[:])}, "\n"))
}

func mac(algorithm func() hash.Hash, key, message []byte) []byte {
	h := hmac.New(algorithm, key)
	h.Write(message)
	return h.Sum(nil)
}

// signature is the parsed signature of a call, before it is checked with a key.
type signature struct {
	scheme    string
	mac       []byte
	timestamp string // only with version 2
}

// parseSignature parses the headers. An error here needs no key, so no call of the API server.
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

// check compares the signature with the HMAC of the key, in constant time.
func (s signature) check(key []byte, r route, method, escapedPath string, body []byte) error {
	var want []byte
	switch {
	case s.scheme == version2:
		want = mac(sha256.New, key, message(method, escapedPath, s.timestamp, body))
	case r.endpoint == approvalEndpoint:
		want = mac(legacyHashes[s.scheme], key, nil) // Weave's approvals sign an empty message.
	default:
		want = mac(legacyHashes[s.scheme], key, body)
	}
	if !hmac.Equal(want, s.mac) {
		return errMismatch
	}
	return nil
}

// digest identifies a signature but cannot be used as one. It is empty for weave's signatures,
// which are all equal.
func (s signature) digest() string {
	if s.scheme != version2 {
		return ""
	}
	sum := sha256.Sum256(s.mac)
	return hex.EncodeToString(sum[:digestBytes])
}
