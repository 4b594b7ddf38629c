package kubeconfig

import (
	"crypto/sha256"
	"encoding/binary"
)

// Fingerprint identifies the parts of a kubeconfig by their hashes, without their values.
type Fingerprint struct {
	endpoint, certificate, token [sha256.Size]byte
}

// Fingerprint returns the Fingerprint of the Config.
func (c *Config) Fingerprint() Fingerprint {
	return Fingerprint{
		endpoint:    digest([]byte(c.Server.String()), []byte(c.TLSServerName), c.CAData),
		certificate: digest(c.CertData, c.KeyData),
		token:       digest([]byte(c.Token)),
	}
}

// digest hashes parts, each with its length in front, so that other parts with the same
// concatenation have another hash.
func digest(parts ...[]byte) (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, p := range parts {
		_ = binary.Write(hash, binary.BigEndian, uint64(len(p)))
		_, _ = hash.Write(p)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// Change is the greatest difference between two kubeconfigs of one cluster.
type Change int

// Changes, in the order of the effort that they need.
const (
	// Same: no difference.
	Same Change = iota
	// TokenOnly: another token. It is replaced while streams stay open.
	TokenOnly
	// ClientCert: another client certificate (and perhaps token). It needs a new TLS
	// connection, next to the open streams.
	ClientCert
	// Endpoint: another server, server name or CA, perhaps another cluster.
	Endpoint
)

// String returns the label value for metrics.
func (c Change) String() string {
	switch c {
	case Same:
		return "none"
	case TokenOnly:
		return "token"
	case ClientCert:
		return "certificate"
	case Endpoint:
		return "endpoint"
	}
	return "unknown"
}

// Classify returns the greatest change from one kubeconfig to the next.
func Classify(from, to Fingerprint) Change {
	switch {
	case from.endpoint != to.endpoint:
		return Endpoint
	case from.certificate != to.certificate:
		return ClientCert
	case from.token != to.token:
		return TokenOnly
	}
	return Same
}
