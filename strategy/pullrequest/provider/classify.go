package provider

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/backoff"
)

const (
	// limitedFor is the wait after a rate limit whose response has no duration. GitHub
	// requires at least one minute:
	// https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
	limitedFor = time.Minute

	// minRetryAfter is the shortest wait that a service may request, so that promotions
	// are never repeated at once. backoff.MaxRetryAfter is the longest, which is GitHub's own
	// window.
	minRetryAfter = time.Second
)

// classify returns the class of a response that is neither a success nor a redirect.
func classify(t pipelinesv1.GitProviderType, status int, body []byte) (Class, string) {
	message, kind := messageOf(t, body)
	class := classOf(status, message, kind)
	if message == "" {
		message = http.StatusText(status)
	}
	return class, message
}

func classOf(status int, message, kind string) Class {
	switch status {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return Unauthorized
	case http.StatusForbidden:
		if strings.Contains(kind, "RejectedByPolicy") {
			return NotMergeable
		}
		return Forbidden
	case http.StatusUnavailableForLegalReasons, http.StatusLocked, http.StatusPaymentRequired:
		return Forbidden
	case http.StatusNotFound, http.StatusGone:
		return NotFound
	case http.StatusMethodNotAllowed, http.StatusNotAcceptable:
		return NotMergeable
	case http.StatusConflict:
		return conflict(message, kind)
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return Transient
	}
	switch {
	case status >= 500, status < 400:
		return Transient
	case alreadyExists(message, kind):
		return AlreadyExists
	case strings.Contains(message, "Branch cannot be merged"):
		return NotMergeable
	default:
		return Validation
	}
}

// alreadyExists: GitHub responds with 422, the others with 409.
func alreadyExists(message, kind string) bool {
	lower := strings.ToLower(message)
	return strings.Contains(lower, "pull request already exists") || // GitHub, Gitea
		strings.Contains(lower, "open merge request already exists") || // GitLab
		strings.Contains(kind, "GitPullRequestExists") || strings.Contains(message, "TF401179") || // Azure DevOps
		strings.Contains(kind, "DuplicatePullRequest") // Bitbucket Server
}

func conflict(message, kind string) Class {
	lower := strings.ToLower(message)
	switch {
	case alreadyExists(message, kind):
		return AlreadyExists
	case strings.Contains(lower, "head branch was modified"), // GitHub
		strings.Contains(lower, "sha does not match"),                                        // GitLab
		strings.Contains(lower, "head out of date"),                                          // Gitea
		strings.Contains(kind, "GitPullRequestStale"), strings.Contains(message, "TF401192"): // Azure DevOps
		return HeadMoved
	case strings.Contains(kind, "EmptyPullRequest"): // Bitbucket Server: nothing to merge
		return Validation
	case strings.Contains(kind, "MergeVetoed"), strings.Contains(lower, "conflict"), strings.Contains(lower, "pushrejected"):
		return NotMergeable
	default:
		return Conflict
	}
}

// behind reports whether the message of a refused merge says that the branch does not have
// the head of the base branch.
func behind(message string) bool {
	lower := strings.ToLower(message)
	return strings.Contains(lower, "behind the base branch") || // Gitea
		strings.Contains(lower, "head branch is out of date") // GitHub
}

// messageOf reads the message of a service's error and, where it has one, the type of its
// exception. It accepts any bytes.
func messageOf(t pipelinesv1.GitProviderType, body []byte) (message, kind string) {
	var answer map[string]any
	if json.Unmarshal(body, &answer) != nil {
		return "", "" // a proxy's page; the status says enough
	}
	var parts []string
	if _, ok := answer["StdErr"]; ok && t == pipelinesv1.Gitea {
		parts = append(parts, "merge conflict") // the plain output of git
	}
	if t == pipelinesv1.AzureDevOps {
		kind, _ = answer["typeKey"].(string)
	}
	for _, key := range []string{"message", "error", "error_description"} {
		parts = append(parts, flatten(answer[key])...)
	}
	if errors, ok := answer["errors"].([]any); ok {
		for _, e := range errors {
			switch e := e.(type) {
			case string:
				parts = append(parts, e)
			case map[string]any:
				parts = append(parts, detail(e)...)
				if name, ok := e["exceptionName"].(string); ok && kind == "" {
					kind = name
				}
			}
		}
	}
	return strings.Join(parts, ": "), kind
}

// detail reads GitHub's and Bitbucket Server's lists of errors.
func detail(e map[string]any) []string {
	if message, ok := e["message"].(string); ok && message != "" {
		return []string{message}
	}
	field, _ := e["field"].(string)
	code, _ := e["code"].(string)
	if field == "" && code == "" {
		return nil
	}
	return []string{strings.TrimSpace(field + " " + code)}
}

// flatten joins GitLab's messages, which are a string, a list or lists by field.
func flatten(value any) []string {
	switch v := value.(type) {
	case string:
		if v != "" {
			return []string{v}
		}
	case []any:
		var all []string
		for _, e := range v {
			if s, ok := e.(string); ok {
				all = append(all, s)
			}
		}
		return all
	case map[string]any:
		var all []string
		for _, field := range slices.Sorted(maps.Keys(v)) {
			for _, s := range flatten(v[field]) {
				all = append(all, fmt.Sprintf("%s %s", field, s))
			}
		}
		return all
	}
	return nil
}

// rateLimit reports whether a response is a rate limit, and its duration.
//
// GitHub limits with 403 or 429: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#exceeding-the-rate-limit
// GitLab with 429: https://docs.gitlab.com/security/rate_limits/
// Azure DevOps with 429: https://learn.microsoft.com/azure/devops/integrate/concepts/rate-limits
func rateLimit(t pipelinesv1.GitProviderType, response *http.Response, message string, now time.Time) (time.Duration, bool) {
	h := response.Header
	limited := response.StatusCode == http.StatusTooManyRequests
	if t == pipelinesv1.GitHub && response.StatusCode == http.StatusForbidden {
		limited = h.Get("X-RateLimit-Remaining") == "0" || h.Get("Retry-After") != "" ||
			strings.Contains(strings.ToLower(message), "rate limit")
	}
	if !limited {
		return 0, false
	}
	if after := retryAfter(response, now); after > 0 {
		return after, true
	}
	exhausted := h.Get("X-RateLimit-Remaining") == "0" || h.Get("RateLimit-Remaining") == "0"
	for _, name := range []string{"X-RateLimit-Reset", "RateLimit-Reset"} {
		if seconds, err := strconv.ParseInt(h.Get(name), 10, 64); err == nil && exhausted {
			return bounded(time.Unix(seconds, 0).Sub(backoff.ServerTime(h, now))), true
		}
	}
	return limitedFor, true
}

// retryAfter returns the wait that the service requests; 0 without the header Retry-After,
// and limitedFor if the header cannot be parsed.
func retryAfter(response *http.Response, now time.Time) time.Duration {
	if strings.TrimSpace(response.Header.Get("Retry-After")) == "" {
		return 0
	}
	if after, ok := backoff.RetryAfter(response.Header, now); ok {
		return bounded(after)
	}
	return limitedFor
}

func bounded(d time.Duration) time.Duration { return min(max(d, minRetryAfter), backoff.MaxRetryAfter) }

// remedy says how a user can fix an error of a class.
func remedy(t pipelinesv1.GitProviderType, class Class, h http.Header) string {
	switch class {
	case Unauthorized:
		return "the token is wrong or has expired: put a valid one under the key token of the Secret"
	case NotFound:
		return "check the URL, the branches and the rights of the token"
	case Forbidden:
		if h.Get("X-GitHub-SSO") != "" {
			return "authorise the token for the organization's single sign-on"
		}
		return rights(t)
	case Invalid, Untrusted, Validation, Unsupported, AlreadyExists, HeadMoved, Conflict, NotMergeable, RateLimited, Transient:
		return ""
	default:
		return ""
	}
}

// rights returns the rights that the token needs.
func rights(t pipelinesv1.GitProviderType) string {
	switch t {
	case pipelinesv1.GitHub:
		return "give the token or App read and write access to contents and pull requests (classic tokens: scope repo)"
	case pipelinesv1.GitLab:
		return "give the token the scope api and its user the role Developer, or the role that may merge"
	case pipelinesv1.Gitea:
		return "give the token the scopes write:repository and write:issue and its user write access"
	case pipelinesv1.AzureDevOps:
		return "give the token the scope Code (read and write) and its user the right to contribute to pull requests"
	case pipelinesv1.BitbucketServer:
		return "give the token the permission repository write"
	default:
		return ""
	}
}
