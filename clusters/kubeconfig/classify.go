package kubeconfig

import (
	"crypto/sha256"
	"encoding/binary"
)

// Fingerprint tells kubeconfigs apart without keeping them.
type Fingerprint struct {
	endpoint, certificate, token [sha256.Size]byte
}

// Fingerprint of the Config.
func (c *Config) Fingerprint() Fingerprint {
	return Fingerprint{
		endpoint:    digest([]byte(c.Server.String()), []byte(c.TLSServerName), c.CAData),
		certificate: digest(c.CertData, c.KeyData),
		token:       digest([]byte(c.Token)),
	}
}

// digest keeps its parts apart by their lengths.
func digest(parts ...[]byte) (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, p := range parts {
		_ = binary.Write(hash, binary.BigEndian, uint64(len(p)))
		_, _ = hash.Write(p)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// Change is what differs between two kubeconfigs of one cluster, the greatest
// difference counting.
type Change int

// Changes, in the order of what they take.
const (
	// Same: nothing.
	Same Change = iota
	// TokenOnly: another token, swapped beneath open streams.
	TokenOnly
	// ClientCert: another client certificate (and perhaps token), which takes a new
	// TLS connection beside the open streams.
	ClientCert
	// Endpoint: another server, server name or CA, perhaps another cluster.
	Endpoint
)

// String is the label of metrics.
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

// Classify says what changed from one kubeconfig to the next.
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
