package schema

// CommitStatus returns the schema of type commitstatus: the states of checks of commits in one
// repository.
func CommitStatus() Schema {
	keys := []Key{
		{
			Name: "provider", Type: Enum, Required: true, Example: "github",
			Description: "Type of the Git service.",
			Constraints: []Constraint{OneOf("github", "gitlab", "gitea", "bitbucket-server")},
		},
		{
			Name: "repository", Type: URL, Required: true, Example: "https://github.com/example/shop",
			Description: "URL of the repository whose commits are promoted, as for git clone.",
			Constraints: []Constraint{Schemes("https")},
		},
		{
			Name: "apiUrl", Type: URL, Example: "https://git.example.com/gitlab/api/v4/",
			Description: "URL of the API, if it cannot be derived from repository: a GitLab under a relative URL.",
			Constraints: []Constraint{Schemes("https")},
		},
		secretKey(true, "`token`, or `username` and `password`, or the keys of a GitHub App (`githubAppID`, `githubAppInstallationID`, `githubAppPrivateKey`); and `caFile`"),
		{
			Name: "pipelines", Type: List, Required: true, Example: `["shop/*"]`,
			Description: "Pipelines that promote commits of the repository, as namespace/name, where * matches any text without a slash.",
			Constraints: []Constraint{NotEmpty(), Matching(`^[a-z0-9.*-]{1,253}/[a-z0-9.*-]{1,253}$`, "entries must have the form namespace/name, where * is allowed")},
		},
	}
	s := Schema{Type: "commitstatus", Title: "States of commits at a Git service", Keys: append(keys, publishing()...), Rules: []Rule{backoffGrows}}
	return s.With(promotionEvents())
}

// promotionEvents is the key eventTypes of types that are for promotions only.
func promotionEvents() Key {
	return Key{
		Name: "eventTypes", Type: List, Default: `["promotion.*"]`, Example: `["promotion.failed.v1"]`,
		Description: "Which events of promotions are sent: patterns of the type without its prefix, where * matches any text.",
		Constraints: []Constraint{NotEmpty(), Matching(`^promotion\.[A-Za-z0-9.*]{1,118}$`, "entries must begin with promotion. and hold letters, digits, dots and * only")},
	}
}
