package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of a signature: those of calls to the hub (hub/approval).
const (
	signatureHeader = "X-Signature"
	timestampHeader = "X-Signature-Timestamp"
)

// sign a call with version 2: what a receiver checks with the code that checks calls to
// the hub. As there, the query of the URL is not part of it.
func sign(request *http.Request, key []byte, at time.Time, body []byte) {
	timestamp, sum := strconv.FormatInt(at.Unix(), 10), sha256.Sum256(body)
	path := request.URL.EscapedPath()
	if path == "" {
		path = "/" // As it is sent.
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(strings.Join([]string{request.Method, path, timestamp, hex.EncodeToString(sum[:])}, "\n")))
	request.Header.Set(signatureHeader, "v2="+hex.EncodeToString(mac.Sum(nil)))
	request.Header.Set(timestampHeader, timestamp)
}
