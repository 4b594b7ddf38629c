package provider

import (
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/backoff"
)

func TestEveryClassHasItsSentinel(t *testing.T) {
	g := NewWithT(t)
	seen := map[error]bool{}
	for _, c := range Classes {
		err := &Error{Class: c, Provider: pipelinesv1.GitHub, Op: "try"}
		g.Expect(c.sentinel()).NotTo(BeNil(), string(c))
		g.Expect(err).To(MatchError(c.sentinel()))
		g.Expect(err.Error()).To(HavePrefix("github: try: "))
		seen[c.sentinel()] = true
	}
	g.Expect(seen).To(HaveLen(len(Classes)))
}

// The words of each service for what the status alone does not tell, from their
// documentation and sources.
func TestWordsOfTheServices(t *testing.T) {
	for name, tc := range map[string]struct {
		kind   pipelinesv1.GitProviderType
		status int
		body   string
		class  Class
		says   string
	}{
		"github exists":     {pipelinesv1.GitHub, 422, `{"message":"Validation Failed","errors":[{"resource":"PullRequest","code":"custom","message":"A pull request already exists for o:b."}]}`, AlreadyExists, "Validation Failed: A pull request already exists for o:b."},
		"github nothing":    {pipelinesv1.GitHub, 422, `{"message":"Validation Failed","errors":[{"message":"No commits between main and b"}]}`, Validation, "Validation Failed: No commits between main and b"},
		"github bad head":   {pipelinesv1.GitHub, 422, `{"message":"Validation Failed","errors":[{"field":"head","code":"invalid"}]}`, Validation, "Validation Failed: head invalid"},
		"github protected":  {pipelinesv1.GitHub, 405, `{"message":"At least 1 approving review is required by reviewers with write access."}`, NotMergeable, "At least 1 approving review is required by reviewers with write access."},
		"gitlab exists":     {pipelinesv1.GitLab, 409, `{"message":["Another open merge request already exists for this source branch: !1"]}`, AlreadyExists, "Another open merge request already exists for this source branch: !1"},
		"gitlab by field":   {pipelinesv1.GitLab, 400, `{"message":{"title":["is too long","is bad"],"base":["x"]}}`, Validation, "base x: title is too long: title is bad"},
		"gitlab conflict":   {pipelinesv1.GitLab, 422, `{"message":"Branch cannot be merged"}`, NotMergeable, "Branch cannot be merged"},
		"gitlab oauth":      {pipelinesv1.GitLab, 401, `{"error":"invalid_token","error_description":"Token is expired."}`, Unauthorized, "invalid_token: Token is expired."},
		"gitlab scope":      {pipelinesv1.GitLab, 403, `{"error":"insufficient_scope","error_description":"more is needed","scope":"api"}`, Forbidden, "insufficient_scope: more is needed"},
		"gitea exists":      {pipelinesv1.Gitea, 409, `{"message":"pull request already exists for these targets [id: 1]"}`, AlreadyExists, "pull request already exists for these targets [id: 1]"},
		"gitea rejected":    {pipelinesv1.Gitea, 409, `{"message":"PushRejected with remote message: protected"}`, NotMergeable, "PushRejected with remote message: protected"},
		"azure exists":      {pipelinesv1.AzureDevOps, 409, `{"message":"TF401179: An active pull request","typeKey":"GitPullRequestExistsException"}`, AlreadyExists, "TF401179: An active pull request"},
		"azure stale":       {pipelinesv1.AzureDevOps, 409, `{"message":"x","typeKey":"GitPullRequestStaleException"}`, HeadMoved, "x"},
		"azure policy":      {pipelinesv1.AzureDevOps, 403, `{"message":"x","typeKey":"GitPullRequestUpdateRejectedByPolicyException"}`, NotMergeable, "x"},
		"bitbucket exists":  {pipelinesv1.BitbucketServer, 409, `{"errors":[{"message":"x","exceptionName":"com.atlassian.bitbucket.pull.DuplicatePullRequestException"}]}`, AlreadyExists, "x"},
		"bitbucket empty":   {pipelinesv1.BitbucketServer, 409, `{"errors":[{"message":"x","exceptionName":"com.atlassian.bitbucket.pull.EmptyPullRequestException"}]}`, Validation, "x"},
		"bitbucket version": {pipelinesv1.BitbucketServer, 409, `{"errors":[{"message":"x","exceptionName":"com.atlassian.bitbucket.pull.PullRequestOutOfDateException"}]}`, Conflict, "x"},
		"bitbucket vetoed":  {pipelinesv1.BitbucketServer, 409, `{"errors":[{"message":"x","exceptionName":"com.atlassian.bitbucket.pull.PullRequestMergeVetoedException"}]}`, NotMergeable, "x"},
		"a word for none":   {pipelinesv1.GitHub, 409, `7`, Conflict, "Conflict"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			class, message := classify(tc.kind, tc.status, []byte(tc.body))
			g.Expect(class).To(Equal(tc.class))
			g.Expect(message).To(Equal(tc.says))
		})
	}
}

func FuzzClassify(f *testing.F) {
	for _, body := range []string{`{"message":"x"}`, `{"message":["x"]}`, `{"message":{"a":["x"]}}`, `{"errors":[{"message":"x","exceptionName":"y"},"z",null,7]}`, `{"typeKey":7}`, "\xff", ``} {
		f.Add(422, "5", body)
	}
	f.Fuzz(func(t *testing.T, status int, after, body string) {
		now := time.Unix(1_800_000_000, 0)
		for _, kind := range []pipelinesv1.GitProviderType{pipelinesv1.GitHub, pipelinesv1.GitLab, pipelinesv1.Gitea, pipelinesv1.AzureDevOps, pipelinesv1.BitbucketServer} {
			class, message := classify(kind, status, []byte(body))
			if class.sentinel() == nil {
				t.Fatalf("%d %q is %q", status, body, class)
			}
			h := http.Header{}
			for _, name := range []string{"Retry-After", "X-RateLimit-Reset", "RateLimit-Reset", "Date"} {
				h.Set(name, after)
			}
			h.Set("X-RateLimit-Remaining", "0")
			wait, limited := rateLimit(kind, &http.Response{StatusCode: status, Header: h}, message, now)
			if limited && (wait < minRetryAfter || wait > backoff.MaxRetryAfter) {
				t.Fatalf("a wait of %s for %q", wait, after)
			}
		}
	})
}
