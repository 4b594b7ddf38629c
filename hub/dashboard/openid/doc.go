// Package openid signs users in at an OpenID Connect provider, by the authorization code
// flow with PKCE.
//
// # Purpose
//
// Begin returns the address at which a user signs in. Finish exchanges the code that the
// provider returns for an ID token. Renew gets a new ID token before that one expires.
// Revoke and EndSession end what the provider keeps.
//
// # Contract
//
// An ID token that is returned was verified: signature by a key of the provider, issuer,
// audience, authorized party, expiry, nonce, and at_hash where the token has it. Each error
// is an ErrUnavailable, or a *Refusal with the error code of the provider, or says what is
// wrong with the answer. No error contains a token or a code.
//
// The configuration of the provider (discovery) is read when it is first needed. While the
// provider does not respond, it is requested again at most every few seconds, so that a
// provider that is down delays neither the hub nor its pages. A provider that was read is
// kept until the hub ends; its signing keys are read again when a token has an unknown one.
//
// # Locking
//
// Provider.mu guards the discovered configuration. It is not held during a request.
//
// # Trade-offs
//
// The client is public when there is no secret; PKCE protects the code in either case. The
// package knows neither cookies nor Kubernetes. Redirects of the provider's own endpoints
// are not followed, because a request could have the secret of the client.
package openid
