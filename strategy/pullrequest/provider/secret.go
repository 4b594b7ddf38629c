package provider

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-hub/capstan/internal/truncate"
)

// Keys of a Secret: weave's, and Flux' for a GitHub App.
const (
	KeyUsername     = "username"
	KeyPassword     = "password"
	KeyToken        = "token"
	KeyCA           = "caFile"
	KeyApp          = "githubAppID"
	KeyInstallation = "githubAppInstallationID"
	KeyPrivateKey   = "githubAppPrivateKey"
)

// maxKey bounds the name of a key in an error, in bytes.
const maxKey = 64

// CredentialsOf returns the credentials in the data of a Secret. Its errors continue "the Secret NAME",
// and show no value.
func CredentialsOf(data map[string][]byte) (Credentials, error) {
	if key := proxyKey(data); key != "" {
		return Credentials{}, fmt.Errorf("has the key %s: only the administrator names a proxy, by the hub's flag --git-proxy; remove the key", truncate.Bytes(key, maxKey))
	}
	text := func(key string) string { return strings.TrimSpace(string(data[key])) }
	c := Credentials{Token: text(KeyToken), Username: text(KeyUsername), Password: string(data[KeyPassword])}
	if len(data[KeyPrivateKey]) == 0 {
		if c.Token == "" && c.Password == "" {
			return c, fmt.Errorf("has no key %s: add it, or %s and %s, or the keys of a GitHub App", KeyToken, KeyUsername, KeyPassword)
		}
		return c, nil
	}
	installation, err := strconv.ParseInt(text(KeyInstallation), 10, 64)
	if err != nil { // It quotes the value.
		return c, fmt.Errorf("has a key %s that is not a number", KeyInstallation)
	}
	c.App = &GitHubApp{ID: text(KeyApp), InstallationID: installation, PrivateKey: data[KeyPrivateKey]}
	return c, nil
}

// proxyKeys are keys by which other tools name a proxy, in lower case and without separators. They would
// have no effect: the user who writes a Secret must not choose the way of the hub's requests.
var proxyKeys = map[string]bool{"proxy": true, "proxyurl": true, "proxyaddress": true, "httpproxy": true, "httpsproxy": true, "allproxy": true}

// proxyKey returns the first key of a Secret that names a proxy; empty if there is none.
func proxyKey(data map[string][]byte) string {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if proxyKeys[strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(key))] {
			return key
		}
	}
	return ""
}
