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

// Validity is the time in which credentials are valid. Each time is zero when it is not known.
type Validity struct{ Issued, Expires time.Time }

// Validity returns that of the credentials that expire first: NotBefore and NotAfter of the
// client certificate, or iat and exp of the token if it is a JWT. It returns zero when
// neither contains the time of its expiry (a token of EKS does not).
func (c *Config) Validity() Validity {
	return earlier(certificateValidity(c.CertData), tokenValidity(c.Token))
}

func earlier(a, b Validity) Validity {
	if a.Expires.IsZero() || (!b.Expires.IsZero() && b.Expires.Before(a.Expires)) {
		return b
	}
	return a
}

func certificateValidity(data []byte) Validity {
	block, _ := pem.Decode(data)
	if block == nil {
		return Validity{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Validity{}
	}
	return ordered(certificate.NotBefore, certificate.NotAfter)
}

func tokenValidity(token string) Validity {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Validity{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Validity{}
	}
	var claims struct {
		// A number in JSON may have a fraction.
		Exp float64 `json:"exp"`
		// Of any type: an expiry without a readable iat is known all the same.
		Iat any `json:"iat"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return Validity{}
	}
	issued, _ := claims.Iat.(float64)
	return ordered(unix(issued), unix(claims.Exp))
}

// unix returns the time of a claim; zero when it is not a time that can be written to status.
func unix(seconds float64) time.Time {
	// The end of the year 9999.
	const latest = 253402300799
	if seconds <= 0 || math.IsNaN(seconds) || seconds > latest {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0).UTC()
}

// ordered returns a Validity that begins before it ends: without expiry it is zero, and an
// issue time that is not before the expiry counts as not known.
func ordered(issued, expires time.Time) Validity {
	if expires.IsZero() || !issued.Before(expires) {
		issued = time.Time{}
	}
	return Validity{Issued: issued, Expires: expires}
}
