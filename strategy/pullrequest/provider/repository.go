package provider

import (
	"net/url"
	"regexp"
	"strings"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// maxURL bounds the URL of a repository, in bytes.
const maxURL = 2048

// githubName matches the names that GitHub allows for owners and repositories. Its client
// puts them into paths without escaping.
var githubName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// scpForm matches git@host:path, Git's short form of SSH.
var scpForm = regexp.MustCompile(`^[^/@]+@[^/:]+:[^/].*`)

// Repository is the parsed URL of a repository, without credentials.
type Repository struct {
	Type pipelinesv1.GitProviderType
	// Server has the scheme, host and path prefix of the service, without a slash at the
	// end.
	Server string
	// APIURL of the service, with a slash at its end.
	APIURL string
	// CloneURL for Git.
	CloneURL string
	// Owner on GitHub and Gitea; the whole path of groups on GitLab; the project's
	// key, or ~user, on Bitbucket Server; empty on Azure DevOps, where organization
	// or collection are part of Server.
	Owner string
	// Project on Azure DevOps.
	Project string
	// Name of the repository, without ".git".
	Name string
}

// String returns the name of the repository for people.
func (r Repository) String() string {
	return first(r.Owner, r.Project) + "/" + r.Name
}

// ParseRepository parses the URL of a repository as people copy it from the service.
// Errors are ErrInvalid and never show the URL, because URLs may contain passwords.
func ParseRepository(t pipelinesv1.GitProviderType, raw string) (Repository, error) {
	u, segments, err := parseURL(t, raw)
	if err != nil {
		return Repository{}, err
	}
	if err := checkHost(t, u.Hostname()); err != nil {
		return Repository{}, err
	}
	origin := u.Scheme + "://" + strings.ToLower(u.Host)
	if last := len(segments) - 1; t != pipelinesv1.AzureDevOps {
		if segments[last] = strings.TrimSuffix(segments[last], ".git"); segments[last] == "" {
			return Repository{}, invalid(t, "the URL names no repository")
		}
	}
	r := Repository{Type: t, CloneURL: origin + u.EscapedPath()}
	switch t {
	case pipelinesv1.GitHub:
		return r.github(u, origin, segments)
	case pipelinesv1.GitLab:
		return r.gitlab(origin, segments)
	case pipelinesv1.Gitea:
		return r.gitea(origin, segments)
	case pipelinesv1.AzureDevOps:
		return r.azureDevOps(u, origin, segments)
	case pipelinesv1.BitbucketServer:
		return r.bitbucketServer(origin, segments)
	default:
		return Repository{}, unknownType(t)
	}
}

func parseURL(t pipelinesv1.GitProviderType, raw string) (*url.URL, []string, error) {
	raw = strings.TrimSpace(raw)
	if raw == "" {
		return nil, nil, invalid(t, "the URL of the repository is missing")
	}
	if len(raw) > maxURL {
		return nil, nil, invalid(t, "the URL is longer than %d bytes", maxURL)
	}
	if !strings.Contains(raw, "://") && scpForm.MatchString(raw) {
		return nil, nil, invalid(t, "the URL has the SSH form (user@host:path); use the HTTPS URL")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, nil, invalid(t, "the URL cannot be parsed")
	}
	switch u.Scheme {
	case "https":
	case "ssh", "git+ssh":
		return nil, nil, invalid(t, "the URL has the SSH form; unsupported URL scheme, only HTTPS supported")
	default:
		return nil, nil, invalid(t, "unsupported URL scheme, only HTTPS supported")
	}
	if _, secret := u.User.Password(); secret {
		return nil, nil, invalid(t, "the URL holds a password; credentials belong into the Secret")
	}
	if u.Hostname() == "" || strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, nil, invalid(t, "the URL has no usable host")
	}
	if u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return nil, nil, invalid(t, "the URL has a query or a fragment; remove it")
	}
	path := strings.Trim(u.Path, "/")
	if path == "" {
		return nil, nil, invalid(t, "the URL names no repository")
	}
	segments := strings.Split(path, "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) {
			return nil, nil, invalid(t, "the URL's path has an empty, relative or unprintable part")
		}
	}
	// An escaped slash would split one segment into two.
	if strings.Count(strings.Trim(u.EscapedPath(), "/"), "/") != len(segments)-1 {
		return nil, nil, invalid(t, "the URL's path has an escaped slash")
	}
	return u, segments, nil
}

// join returns the URL of an origin and decoded segments.
func join(origin string, segments ...string) string {
	var b strings.Builder
	b.WriteString(origin)
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// ownerAndName takes the last two segments; the segments before are a path prefix.
func (r *Repository) ownerAndName(origin string, segments []string, form string) error {
	n := len(segments)
	if n < 2 {
		return invalid(r.Type, "the URL does not have the form %s", form)
	}
	r.Server, r.Owner, r.Name = join(origin, segments[:n-2]...), segments[n-2], segments[n-1]
	return nil
}

// github: https://docs.github.com/en/rest/using-the-rest-api/getting-started-with-the-rest-api
// and, for GitHub Enterprise, https://docs.github.com/en/enterprise-server/rest.
func (r Repository) github(u *url.URL, origin string, segments []string) (Repository, error) {
	if err := r.ownerAndName(origin, segments, "https://host/owner/repository"); err != nil {
		return Repository{}, err
	}
	if !githubName.MatchString(r.Owner) || !githubName.MatchString(r.Name) {
		return Repository{}, invalid(r.Type, "the owner or the repository has a character that GitHub does not allow")
	}
	host := strings.ToLower(u.Host)
	switch {
	case host == "github.com" || host == "www.github.com":
		r.APIURL = "https://api.github.com/"
	case strings.HasSuffix(host, ".ghe.com"):
		r.APIURL = "https://api." + host + "/"
	default:
		r.APIURL = r.Server + "/api/v3/"
		return r, nil
	}
	if len(segments) != 2 {
		return Repository{}, invalid(r.Type, "the URL does not have the form https://%s/owner/repository", host)
	}
	return r, nil
}

// gitlab: https://docs.gitlab.com/api/rest/#namespaced-paths. Every segment is a
// group: a relative URL root cannot be distinguished from one.
func (r Repository) gitlab(origin string, segments []string) (Repository, error) {
	n := len(segments)
	if n < 2 {
		return Repository{}, invalid(r.Type, "the URL does not have the form https://host/group/repository")
	}
	for _, s := range segments {
		if s == "-" {
			return Repository{}, invalid(r.Type, "the URL is that of a page in the repository (it contains /-/); use the URL of the repository")
		}
	}
	r.Server, r.Owner, r.Name = origin, strings.Join(segments[:n-1], "/"), segments[n-1]
	r.APIURL = r.Server + "/api/v4/"
	return r, nil
}

// gitea: https://docs.gitea.com/development/api-usage.
func (r Repository) gitea(origin string, segments []string) (Repository, error) {
	if err := r.ownerAndName(origin, segments, "https://host/owner/repository"); err != nil {
		return Repository{}, err
	}
	r.APIURL = r.Server + "/api/v1/"
	return r, nil
}

// azureDevOps: https://learn.microsoft.com/rest/api/azure/devops/git/. On
// dev.azure.com the first segment is the organization. On *.visualstudio.com the host
// names it, and on Azure DevOps Server the collection. The URL of a repository with its
// project's name may omit the project.
func (r Repository) azureDevOps(u *url.URL, origin string, segments []string) (Repository, error) {
	at := -1
	for i, s := range segments {
		if s == "_git" {
			at = i
			break
		}
	}
	if at < 0 || at != len(segments)-2 {
		return Repository{}, invalid(r.Type, "the URL does not have the form https://dev.azure.com/organization/project/_git/repository")
	}
	r.Name = segments[at+1]
	before := segments[:at]
	collections := 1 // segments before the project in every URL
	if strings.HasSuffix(strings.ToLower(u.Hostname()), ".visualstudio.com") {
		collections = 0
		if len(before) > 0 && strings.EqualFold(before[0], "DefaultCollection") {
			collections = 1
		}
	}
	switch {
	case len(before) < collections:
		return Repository{}, invalid(r.Type, "the URL names no organization or collection")
	case len(before) == collections:
		r.Project = r.Name
	default:
		r.Project, before = before[len(before)-1], before[:len(before)-1]
	}
	r.Server = join(origin, before...)
	r.APIURL = r.Server + "/"
	return r, nil
}

// bitbucketServer: https://developer.atlassian.com/server/bitbucket/rest/. Clone
// URLs have /scm/, pages have /projects/KEY/repos/ or /users/NAME/repos/.
func (r Repository) bitbucketServer(origin string, segments []string) (Repository, error) {
	n := len(segments)
	if n >= 4 && segments[n-2] == "repos" && (segments[n-4] == "projects" || segments[n-4] == "users") {
		owner := segments[n-3]
		if segments[n-4] == "users" {
			owner = "~" + owner
		}
		segments = append(segments[:n-4:n-4], "scm", owner, segments[n-1])
	}
	if err := r.ownerAndName(origin, segments, "https://host/scm/PROJECT/repository.git"); err != nil {
		return Repository{}, err
	}
	r.Server = strings.TrimSuffix(r.Server, "/scm")
	r.APIURL = r.Server + "/rest/api/1.0/"
	r.CloneURL = join(r.Server, "scm", r.Owner, r.Name) + ".git"
	return r, nil
}

// withAPI sets another URL of the API at the same origin, and the fields derived from it.
func (r Repository) withAPI(raw string) (Repository, error) {
	api, err := url.Parse(raw)
	server, perr := url.Parse(r.APIURL)
	if err != nil || perr != nil || api.User != nil || api.RawQuery != "" || api.Fragment != "" {
		return Repository{}, invalid(r.Type, "apiURL is not a valid URL")
	}
	if api.Scheme != server.Scheme || !strings.EqualFold(api.Host, server.Host) {
		return Repository{}, invalid(r.Type, "the scheme and host of apiURL differ from those of the repository's URL; they must be equal")
	}
	api.Host = server.Host
	r.APIURL = strings.TrimRight(api.String(), "/") + "/"
	if r.Type == pipelinesv1.GitLab {
		root := strings.Trim(strings.TrimSuffix(strings.TrimRight(api.Path, "/"), "/api/v4"), "/")
		if root != "" {
			r.Server += "/" + root
			r.Owner = strings.TrimPrefix(r.Owner, root+"/")
		}
	}
	return r, nil
}
