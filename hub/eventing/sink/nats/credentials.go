package nats

import (
	"bytes"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
)

// Keys of the Secret.
const (
	keyCreds    = "creds"
	keyNkey     = "nkey"
	keyUsername = "username"
	keyPassword = "password"
	keyToken    = "token"
)

// credentials returns the options for the strongest credentials in a Secret.
func credentials(secret map[string][]byte) ([]nats.Option, error) {
	get := func(key string) []byte { return bytes.TrimSpace(secret[key]) }
	switch {
	case secret == nil:
		return nil, nil
	case len(get(keyCreds)) > 0:
		creds := get(keyCreds)
		if _, err := nkeys.ParseDecoratedJWT(creds); err != nil {
			return nil, wire.Secretf(keyCreds, "is not a credentials file of NATS")
		}
		pair, err := nkeys.ParseDecoratedNKey(creds)
		if err != nil {
			return nil, wire.Secretf(keyCreds, "is not a credentials file of NATS: it has no user seed")
		}
		pair.Wipe()
		return []nats.Option{nats.UserCredentialBytes(creds)}, nil
	case len(get(keyNkey)) > 0:
		pair, err := nkeys.FromSeed(get(keyNkey))
		if err != nil {
			return nil, wire.Secretf(keyNkey, "is not a seed of an nkey")
		}
		public, err := pair.PublicKey()
		if err != nil || !nkeys.IsValidPublicUserKey(public) {
			return nil, wire.Secretf(keyNkey, "is not a seed of a user's nkey")
		}
		return []nats.Option{nats.Nkey(public, pair.Sign)}, nil
	case len(get(keyUsername)) > 0:
		if len(secret[keyPassword]) == 0 {
			return nil, wire.Secretf(keyPassword, "is missing: %s needs it", keyUsername)
		}
		return []nats.Option{nats.UserInfo(string(get(keyUsername)), string(secret[keyPassword]))}, nil
	case len(get(keyToken)) > 0:
		return []nats.Option{nats.Token(string(get(keyToken)))}, nil
	case len(secret[wire.KeyCA])+len(secret[wire.KeyCert]) > 0:
		return nil, nil // Only TLS.
	}
	return nil, wire.Secretf(keyCreds, "or %s, %s or %s is missing", keyNkey, keyUsername, keyToken)
}
