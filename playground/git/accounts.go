package git

import (
	"context"
	"crypto/rand"
	"fmt"

	"code.gitea.io/sdk/gitea"
)

// Scopes of tokens, by their names since Gitea 1.19; the SDK's constants are older.
const (
	scopeAll          gitea.AccessTokenScope = "all"
	scopeRepositories gitea.AccessTokenScope = "write:repository"
	scopeIssues       gitea.AccessTokenScope = "write:issue" // comments and labels
	scopeOwnUser      gitea.AccessTokenScope = "read:user"
)

// Admin is the administrator's account.
func (s *Server) Admin() Account { return s.admin }

// AddUser creates a user with a token that may do what a promotion needs: push branches, and
// open, comment and merge pull requests.
func (s *Server) AddUser(ctx context.Context, name string) (Account, error) {
	c, err := s.Client(ctx, s.admin)
	if err != nil {
		return Account{}, err
	}
	a := Account{Username: name, Password: rand.Text()}
	keep := false
	if _, _, err := c.AdminCreateUser(gitea.CreateUserOption{
		Username: name, Password: a.Password, Email: name + "@playground.invalid", MustChangePassword: &keep,
	}); err != nil {
		return Account{}, fmt.Errorf("creating user %s: %w", name, err)
	}
	a.Token, err = s.token(ctx, a, scopeRepositories, scopeIssues, scopeOwnUser)
	return a, err
}

// token issues a token, which requires the password.
func (s *Server) token(ctx context.Context, of Account, scopes ...gitea.AccessTokenScope) (string, error) {
	c, err := s.Client(ctx, Account{Username: of.Username, Password: of.Password})
	if err != nil {
		return "", err
	}
	t, _, err := c.CreateAccessToken(gitea.CreateAccessTokenOption{Name: "playground", Scopes: scopes})
	if err != nil {
		return "", fmt.Errorf("issuing a token for %s: %w", of.Username, err)
	}
	return t.Token, nil
}

// Client returns a client of Gitea's API for an account, with its token if it has one. Its
// calls end with the context.
func (s *Server) Client(ctx context.Context, a Account) (*gitea.Client, error) {
	as := gitea.SetToken(a.Token)
	if a.Token == "" {
		as = gitea.SetBasicAuth(a.Username, a.Password)
	}
	// The empty version prevents a request for Gitea's version.
	c, err := gitea.NewClient(s.url, gitea.SetContext(ctx), gitea.SetHTTPClient(s.http), gitea.SetGiteaVersion(""), as)
	if err != nil {
		return nil, fmt.Errorf("client of Gitea: %w", err)
	}
	return c, nil
}
