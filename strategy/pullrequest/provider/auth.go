package provider

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

const (
	// struckOut replaces a credential in a text.
	struckOut = "[redacted]"

	// minSecret is the length of the shortest text that is removed, in bytes. No service
	// has shorter credentials, and their removal would delete half of every message.
	minSecret = 6

	// jwtBackdated is the time by which a GitHub App's own token is backdated, because
	// clocks differ. jwtLife is its validity. GitHub's documentation requires 60 s and at
	// most ten minutes.
	jwtBackdated = 60 * time.Second
	jwtLife      = 9 * time.Minute

	// appTokenReserve is the time before its expiry (one hour after its creation) at which
	// an installation's token is replaced. A clone and a push must fit into it.
	appTokenReserve = 5 * time.Minute
)

// scheme of an Authorization header.
type scheme int

const (
	bearer scheme = iota
	giteaToken
	basic
)

// authorizer adds the credentials to requests, and removes them from texts.
type authorizer struct {
	kind     pipelinesv1.GitProviderType
	scheme   scheme
	token    string // for bearer and giteaToken
	username string // for basic, and for Git
	password string
	plain    gitCredentials
	secrets  []string

	// A GitHub App: the key, and the last token of the installation.
	app       *GitHubApp
	key       *rsa.PrivateKey
	installed atomic.Pointer[appToken]
	// client and api are used to fetch the token; New sets them before the first use.
	client *http.Client
	api    string
}

type gitCredentials struct{ username, password string }

type appToken struct {
	token   string
	expires time.Time
}

func newAuthorizer(t pipelinesv1.GitProviderType, c Credentials) (*authorizer, error) {
	c.Token, c.Password = strings.TrimSpace(c.Token), strings.TrimRight(c.Password, "\r\n")
	c.Username = strings.TrimSpace(c.Username)
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, invalid(t, "the token contains characters that are invalid in a token")
	}
	a := &authorizer{kind: t, token: c.Token, username: c.Username, password: c.Password}
	switch t {
	case pipelinesv1.GitHub:
		a.plain.username = "x-access-token"
		if c.App != nil {
			return a, a.useApp(*c.App)
		}
		a.token = first(c.Token, c.Password)
	case pipelinesv1.GitLab:
		// Personal, project, group and OAuth tokens are all accepted as bearer tokens:
		// https://docs.gitlab.com/api/rest/authentication/
		a.plain.username = "oauth2"
		a.token = first(c.Token, c.Password)
	case pipelinesv1.Gitea:
		// https://docs.gitea.com/development/api-usage#authentication
		a.plain.username = first(c.Username, "oauth2")
		a.scheme = giteaToken
		if c.Token == "" && c.Username != "" && c.Password != "" {
			a.scheme = basic
		}
	case pipelinesv1.AzureDevOps:
		// A personal access token is a password without a user; an Entra token, which
		// is a JWT, is a bearer token.
		// https://learn.microsoft.com/azure/devops/organizations/accounts/use-personal-access-tokens-to-authenticate
		a.plain.username = first(c.Username, "capstan")
		a.token = first(c.Token, c.Password)
		if !strings.HasPrefix(a.token, "eyJ") {
			a.scheme, a.username, a.password = basic, "", a.token
		}
	case pipelinesv1.BitbucketServer:
		// https://confluence.atlassian.com/bitbucketserver/http-access-tokens-939515499.html
		a.plain.username = first(c.Username, "x-token-auth")
		if c.Token == "" && c.Username != "" && c.Password != "" {
			a.scheme = basic
		}
	default:
		return nil, unknownType(t)
	}
	if a.scheme != basic && a.token == "" || a.scheme == basic && a.password == "" {
		return nil, invalid(t, "the Secret has no key token: add it")
	}
	a.plain.password = first(c.Password, c.Token)
	if c.Username != "" && c.Password != "" {
		a.plain.username = c.Username
	}
	a.remember(c.Token, c.Password)
	return a, nil
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// remember makes redact remove secrets, plain and encoded as in requests.
func (a *authorizer) remember(secrets ...string) {
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		a.secrets = append(a.secrets, s, url.QueryEscape(s), base64.StdEncoding.EncodeToString([]byte(s)),
			base64.StdEncoding.EncodeToString([]byte(":"+s)), base64.StdEncoding.EncodeToString([]byte(a.username+":"+s)))
	}
}

func (a *authorizer) redact(text string) string {
	for _, s := range a.secrets {
		text = strings.ReplaceAll(text, s, struckOut)
	}
	if t := a.installed.Load(); t != nil && len(t.token) >= minSecret {
		text = strings.ReplaceAll(text, t.token, struckOut)
	}
	return text
}

// useApp authenticates as an installation of a GitHub App.
func (a *authorizer) useApp(app GitHubApp) error {
	if app.ID == "" || app.InstallationID <= 0 {
		return invalid(a.kind, "a GitHub App needs its id and the id of its installation")
	}
	key, err := jwt.ParseRSAPrivateKeyFromPEM(app.PrivateKey)
	if err != nil {
		// The parser's error may contain parts of the key.
		return invalid(a.kind, "the GitHub App's private key is not an RSA key in PEM format")
	}
	a.app, a.key = &app, key
	return nil
}

// authorize adds the Authorization header.
func (a *authorizer) authorize(request *http.Request, now time.Time) error {
	if request.Header.Get("Authorization") != "" {
		return nil // The App's own token is set, by installation.
	}
	token := a.token
	if a.app != nil {
		var err error
		if token, err = a.installation(request.Context(), now); err != nil {
			return err
		}
	}
	switch a.scheme {
	case bearer:
		request.Header.Set("Authorization", "Bearer "+token)
	case giteaToken:
		request.Header.Set("Authorization", "token "+token)
	case basic:
		request.SetBasicAuth(a.username, a.password)
	}
	return nil
}

// forget removes the installation's token after the service refused it. The service may not
// know a fresh token everywhere, a token has the rights of the time when it was made, and a
// reinstalled App gets another.
func (a *authorizer) forget() { a.installed.Store(nil) }

// git returns the credentials for Git's basic authentication.
func (a *authorizer) git(ctx context.Context, now time.Time) (username, password string, err error) {
	if a.app == nil {
		return a.plain.username, a.plain.password, nil
	}
	token, err := a.installation(ctx, now)
	return a.plain.username, token, err
}

// installation returns the token of the App's installation, and fetches it if necessary.
// https://docs.github.com/en/rest/apps/apps#create-an-installation-access-token-for-an-app
func (a *authorizer) installation(ctx context.Context, now time.Time) (string, error) {
	if t := a.installed.Load(); t != nil && now.Add(appTokenReserve).Before(t.expires) {
		return t.token, nil
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer:    a.app.ID,
		IssuedAt:  jwt.NewNumericDate(now.Add(-jwtBackdated)),
		ExpiresAt: jwt.NewNumericDate(now.Add(jwtLife)),
	}).SignedString(a.key)
	if err != nil {
		return "", invalid(a.kind, "the GitHub App's private key cannot sign")
	}
	address := a.api + "app/installations/" + strconv.FormatInt(a.app.InstallationID, 10) + "/access_tokens"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, http.NoBody)
	if err != nil {
		return "", invalid(a.kind, "apiURL is not a valid URL")
	}
	request.Header.Set("Authorization", "Bearer "+signed)
	request.Header.Set("Accept", "application/vnd.github+json")
	response, err := a.client.Do(request)
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Class == NotFound {
		missing := *refusal
		missing.Message = fmt.Sprintf("the GitHub App %s has no installation %d", a.app.ID, a.app.InstallationID)
		missing.Remedy = "check githubAppID and githubAppInstallationID of the Secret, and that the App is installed"
		return "", &missing
	}
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires_at"`
	}
	// Without the decoder's error, which may contain parts of the token.
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Token == "" {
		return "", refused(Transient, "the response contains no installation token")
	}
	a.installed.Store(&appToken{token: answer.Token, expires: answer.Expires})
	return answer.Token, nil
}
