package kubeconfig

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math"
	"strings"
	"time"
)

// Expiry returns when the first of the credentials expires: NotAfter of the client
// certificate, or exp of the token if it is a JWT. It returns zero when neither contains
// that time (a token of EKS does not).
func (c *Config) Expiry() time.Time {
	return earlier(certificateExpiry(c.CertData), tokenExpiry(c.Token))
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func certificateExpiry(data []byte) time.Time {
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return certificate.NotAfter
}

func tokenExpiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		// A number in JSON may have a fraction.
		Exp float64 `json:"exp"`
	}
	// A year beyond 9999 cannot be written to status.
	const latest = 253402300799
	if json.Unmarshal(payload, &claims) != nil || claims.Exp <= 0 || math.IsNaN(claims.Exp) || claims.Exp > latest {
		return time.Time{}
	}
	return time.Unix(int64(claims.Exp), 0).UTC()
}
