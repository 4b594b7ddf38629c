package cli

import (
	"net/url"
	"strings"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/dashboard/openid"
)

// oidcScopes are the scopes that are requested by default: those that name the user, and the one
// for a refresh token.
func oidcScopes() []string { return []string{"profile", "email", "offline_access"} }

// checkOIDC refuses wrong flags of the sign-in with OpenID Connect.
func checkOIDC(d hub.Dashboard, refuse func(flag, format string, args ...any)) {
	if d.URL != "" {
		if err := openid.CheckURL(d.URL); err != nil {
			refuse("dashboard-url", "%v", err)
		} else if u, err := url.Parse(d.URL); err != nil || strings.Trim(u.Path, "/") != "" {
			refuse("dashboard-url", "%q has a path: the dashboard is served at the root of its host, such as https://capstan.example.org", d.URL)
		}
	}
	if d.OIDC.IssuerURL == "" {
		for flag, value := range map[string]string{"client-id": d.OIDC.ClientID, "client-secret-file": d.OIDC.ClientSecretFile, "ca-file": d.OIDC.CAFile} {
			if value != "" {
				refuse("dashboard-oidc-"+flag, "it has no effect without an issuer: set --dashboard-oidc-issuer-url, too")
			}
		}
		return
	}
	if err := openid.CheckURL(d.OIDC.IssuerURL); err != nil {
		refuse("dashboard-oidc-issuer-url", "%v", err)
	}
	if d.Auth == dashboard.AuthNone {
		refuse("dashboard-oidc-issuer-url", "sign-in is disabled by --dashboard-auth=none: set it to token, which allows both ways to sign in")
	}
	if d.OIDC.ClientID == "" {
		refuse("dashboard-oidc-client-id", "it is required with --dashboard-oidc-issuer-url: set it to the name of the dashboard's client at the provider")
	}
	if d.URL == "" {
		refuse("dashboard-url", "it is required with --dashboard-oidc-issuer-url: set it to the address at which browsers open the dashboard, such as https://capstan.example.org")
	}
	for _, scope := range d.OIDC.Scopes {
		if scope == "" || strings.ContainsAny(scope, " \t\"\\") {
			refuse("dashboard-oidc-scopes", "%q is not a scope: separate scopes by commas", scope)
		}
	}
}
