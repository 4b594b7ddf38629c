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

// Headers of a signature, the same as for calls to the hub (hub/approval).
const (
	signatureHeader = "X-Signature"
	timestampHeader = "X-Signature-Timestamp"
)

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
