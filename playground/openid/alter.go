package openid

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

const tokenPath = "/oauth/token"

// altered changes the ID tokens of answers as Alter says.
func (p *Provider) altered(served http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.storage.mu.Lock()
		change := p.lockedAlter
		p.storage.mu.Unlock()
		if r.URL.Path != tokenPath || change == nil {
			served.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		served.ServeHTTP(answer, r)
		body, err := p.changed(answer.Body.Bytes(), change)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body) // It fails only when the client disconnected.
	})
}

// changed returns an answer of the token endpoint with a changed ID token. An answer without
// one is returned as it is.
func (p *Provider) changed(body []byte, change func(map[string]any)) ([]byte, error) {
	var answer map[string]any
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	raw, ok := answer["id_token"].(string)
	if !ok {
		return body, nil
	}
	parts := strings.Split(raw, ".")
	const compact = 3
	if len(parts) != compact {
		return nil, errors.New("the ID token is no JWS in compact form")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, fmt.Errorf("reading the ID token: %w", err)
	}
	claims := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	if err := decoder.Decode(&claims); err != nil {
		return nil, fmt.Errorf("reading the ID token: %w", err)
	}
	change(claims)
	delete(answer, "id_token")
	if len(claims) > 0 {
		if answer["id_token"], err = p.Sign(claims); err != nil {
			return nil, err
		}
	}
	return json.Marshal(answer)
}

// Sign returns a token with claims, signed with the key of the provider.
func (p *Provider) Sign(claims map[string]any) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.key, KeyID: signingKey{}.ID()}}, nil)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return signed.CompactSerialize()
}
