package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
)

// Headers of a signature, the same as for calls to the hub (hub/approval).
const (
	signatureHeader = "X-Signature"
	timestampHeader = "X-Signature-Timestamp"
)

// Keys of Standard Webhooks: their prefix, and their allowed size in bytes (specification, section
// "Signature scheme").
const (
	standardPrefix = "whsec_"
	minStandardKey = 24
	maxStandardKey = 64
)

// signer adds the signature to a call of an event. It reports no byte of a key.
type signer func(request *http.Request, id string, at time.Time, body []byte) error

// signature returns the signer of a form (schema.SignatureKey) with the keys of a Secret. Without a
// key, version 2 signs nothing. The error is of class wire.ErrSecret.
func signature(form string, secret map[string][]byte) (signer, error) {
	if form == schema.SignatureStandard {
		return standard(secret)
	}
	key := bytes.TrimSpace(secret[keyHMAC])
	return func(request *http.Request, _ string, at time.Time, body []byte) error {
		if len(key) > 0 {
			sign(request, key, at, body)
		}
		return nil
	}, nil
}

// standard returns the signer of Standard Webhooks (standardwebhooks.com). Each key of the Secret
// makes one signature, so that a receiver may have the new or the previous key.
func standard(secret map[string][]byte) (signer, error) {
	var all []*standardwebhooks.Webhook
	for _, name := range []string{keyHMAC, keyPrevious} {
		text := strings.TrimSpace(string(secret[name]))
		if text == "" && name == keyPrevious {
			continue
		}
		if text == "" {
			return nil, wire.Secretf(name, "is missing: signature standard needs it")
		}
		encoded, prefixed := strings.CutPrefix(text, standardPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !prefixed || err != nil || len(key) < minStandardKey || len(key) > maxStandardKey { // err may quote the key.
			return nil, wire.Secretf(name, "must be %s and %d to %d random bytes in base64", standardPrefix, minStandardKey, maxStandardKey)
		}
		webhook, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, wire.Secretf(name, "cannot be used")
		}
		all = append(all, webhook)
	}
	return func(request *http.Request, id string, at time.Time, body []byte) error {
		signatures := make([]string, len(all))
		for i, webhook := range all {
			var err error
			if signatures[i], err = webhook.Sign(id, at, body); err != nil {
				return sink.Errorf(sink.Refused, "malformed", "event %s cannot be signed", id)
			}
		}
		request.Header.Set(standardwebhooks.HeaderWebhookID, id)
		request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
		request.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
		return nil
	}, nil
}

// sign a call with version 2. The receiver checks it in the same way as the hub checks calls to
// it (hub/approval). As there, the query of the URL is not signed.
func sign(request *http.Request, key []byte, at time.Time, body []byte) {
	timestamp, sum := strconv.FormatInt(at.Unix(), 10), sha256.Sum256(body)
	path := request.URL.EscapedPath()
	if path == "" {
		path = "/" // The request is sent with this path.
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(strings.Join([]string{request.Method, path, timestamp, hex.EncodeToString(sum[:])}, "\n")))
	request.Header.Set(signatureHeader, "v2="+hex.EncodeToString(mac.Sum(nil)))
	request.Header.Set(timestampHeader, timestamp)
}
