package beb

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
)

// Keys of the Secret.
const (
	keyMessaging = "messaging"
	keyNamespace = "namespace"
)

// restGateway is the broker.type of the element for REST.
const restGateway = "saprestmgw"

// serviceKey has the parts of a service key that are used.
type serviceKey struct {
	uri, token           *url.URL
	clientID, clientCode string
	namespace            string
}

// messaging is one element of the list in the key messaging.
type messaging struct {
	Broker struct {
		Type string `json:"type"`
	} `json:"broker"`
	OA2 struct {
		ClientID      string `json:"clientid"`
		ClientSecret  string `json:"clientsecret"` //nolint:gosec // The name of a field.
		TokenEndpoint string `json:"tokenendpoint"`
		GrantType     string `json:"granttype"`
	} `json:"oa2"`
	URI string `json:"uri"`
}

// parse a Secret. A namespace that is set has precedence over the one in the Secret.
func parse(secret map[string][]byte, namespace string) (serviceKey, error) {
	if len(secret[keyMessaging]) == 0 {
		return serviceKey{}, wire.Secretf(keyMessaging, "is missing")
	}
	var elements []messaging
	if json.Unmarshal(secret[keyMessaging], &elements) != nil { // The error would quote the Secret.
		return serviceKey{}, wire.Secretf(keyMessaging, "is not a JSON list of brokers")
	}
	for _, m := range elements {
		if m.Broker.Type == restGateway {
			return m.key(strings.TrimSpace(string(secret[keyNamespace])), namespace)
		}
	}
	return serviceKey{}, wire.Secretf(keyMessaging, "has no element with broker.type %s: enable messagingrest (httprest) in the service instance", restGateway)
}

func (m messaging) key(inSecret, configured string) (serviceKey, error) {
	k := serviceKey{clientID: m.OA2.ClientID, clientCode: m.OA2.ClientSecret, namespace: configured}
	if k.namespace == "" {
		k.namespace = inSecret
	}
	if k.namespace == "" {
		return serviceKey{}, wire.Secretf(keyNamespace, "is missing, and so is the key namespace of spec.config")
	}
	if k.clientID == "" || k.clientCode == "" {
		return serviceKey{}, wire.Secretf(keyMessaging, "has no oa2.clientid or oa2.clientsecret for %s", restGateway)
	}
	if m.OA2.GrantType != "client_credentials" {
		return serviceKey{}, wire.Secretf(keyMessaging, "has an oa2.granttype other than client_credentials for %s", restGateway)
	}
	var ok bool
	if k.uri, ok = secure(m.URI); !ok {
		return serviceKey{}, wire.Secretf(keyMessaging, "has no https uri for %s", restGateway)
	}
	if k.token, ok = secure(m.OA2.TokenEndpoint); !ok {
		return serviceKey{}, wire.Secretf(keyMessaging, "has no https oa2.tokenendpoint for %s", restGateway)
	}
	return k, nil
}

// secure parses a URL; false unless it is https, without user and password.
func secure(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	return u, err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil
}
