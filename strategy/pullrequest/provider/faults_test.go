package provider_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// refusal returns the *Error that every error must be.
func refusal(t *testing.T, err error) *provider.Error {
	t.Helper()
	var e *provider.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is no *provider.Error: %v", err, err)
	}
	if e.Provider == "" || e.Op == "" {
		t.Errorf("an error without provider or op: %#v", e)
	}
	return e
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func TestAnswersAreClassified(t *testing.T) {
	html := []byte("<html><body>something else</body></html>")
	for name, tc := range map[string]struct {
		status    int
		header    http.Header
		body      []byte
		class     provider.Class
		after     time.Duration
		hasRemedy bool
	}{
		"unauthorized":             {401, nil, []byte(`{"message":"no"}`), provider.Unauthorized, 0, true},
		"forbidden":                {403, nil, []byte(`{"message":"Resource not accessible by integration"}`), provider.Forbidden, 0, true},
		"archived":                 {423, nil, nil, provider.Forbidden, 0, true},
		"legal":                    {451, nil, nil, provider.Forbidden, 0, true},
		"repository gone":          {404, nil, nil, provider.NotFound, 0, true},
		"gone for good":            {410, nil, html, provider.NotFound, 0, true},
		"conflict without a word":  {409, nil, html, provider.Conflict, 0, false},
		"unprocessable":            {422, nil, []byte(`{"message":"no"}`), provider.Validation, 0, false},
		"bad request":              {400, nil, []byte(`[]`), provider.Validation, 0, false},
		"limited":                  {429, nil, nil, provider.RateLimited, time.Minute, false},
		"limited for seconds":      {429, header("Retry-After", "17"), nil, provider.RateLimited, 17 * time.Second, false},
		"limited for no time":      {429, header("Retry-After", "0"), nil, provider.RateLimited, time.Second, false},
		"limited for ever":         {429, header("Retry-After", "99999999"), nil, provider.RateLimited, time.Hour, false},
		"limited for nonsense":     {429, header("Retry-After", "soon"), nil, provider.RateLimited, time.Minute, false},
		"limited until a date":     {429, header("Date", "Mon, 02 Jan 2006 15:04:05 GMT", "Retry-After", "Mon, 02 Jan 2006 15:05:05 GMT"), nil, provider.RateLimited, time.Minute, false},
		"limited till a reset":     {429, header("Date", "Mon, 02 Jan 2006 15:04:05 GMT", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1136214365"), nil, provider.RateLimited, 2 * time.Minute, false},
		"internal error":           {500, nil, []byte(`{"message":"oops"}`), provider.Transient, 0, false},
		"bad gateway":              {502, nil, html, provider.Transient, 0, false},
		"unavailable for a while":  {503, header("Retry-After", "30"), html, provider.Transient, 30 * time.Second, false},
		"timeout at the gateway":   {504, nil, nil, provider.Transient, 0, false},
		"garbage":                  {200, nil, []byte("\xff\xfe{{{"), provider.Transient, 0, false},
		"another site":             {200, nil, html, provider.Transient, 0, false},
		"nothing":                  {200, nil, nil, provider.Transient, 0, false},
		"null":                     {200, nil, []byte("null"), provider.Transient, 0, false},
		"an empty object":          {200, nil, []byte("{}"), provider.Transient, 0, false},
		"a list for an object":     {200, nil, []byte(`[{"number":1}]`), provider.Transient, 0, false},
		"numbers for text":         {200, nil, []byte(`{"number":"x","iid":"x","pullRequestId":"x","id":"x","title":7}`), provider.Transient, 0, false},
		"half of an object":        {200, nil, []byte(`{"number":1,"head":null,"state":"open"`), provider.Transient, 0, false},
		"an unknown state":         {200, nil, []byte(`{"number":1,"iid":1,"id":1,"pullRequestId":1,"state":"merging","status":"merging","head":{"ref":"a"},"base":{"ref":"b"}}`), provider.Transient, 0, false},
		"not modified":             {304, nil, nil, provider.Transient, 0, false},
		"accepted for later":       {202, nil, nil, provider.Transient, 0, false},
		"no content":               {204, nil, nil, provider.Transient, 0, false},
		"a redirect that is none":  {302, nil, nil, provider.Transient, 0, false},
		"larger than anything":     {200, nil, bytes.Repeat([]byte(" "), 9<<20), provider.Transient, 0, false},
		"an error beyond measure":  {500, nil, bytes.Repeat([]byte("x"), 9<<20), provider.Transient, 0, false},
		"a header beyond measure":  {200, header("X-Long", strings.Repeat("x", 100<<10)), nil, provider.Transient, 0, false},
		"a status beyond the list": {299, nil, nil, provider.Transient, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
				g := NewWithT(t)
				created := open(t, p)
				s.AddFault(providertest.Fault{Status: tc.status, Header: tc.header, Body: tc.body})
				for _, act := range []func() error{
					func() error { _, err := p.Get(t.Context(), created.Number); return err },
					func() error {
						_, err := p.Create(t.Context(), provider.NewPullRequest{Head: head, Base: base, Title: "t"})
						return err
					},
				} {
					err := act()
					g.Expect(err).To(HaveOccurred())
					e := refusal(t, err)
					g.Expect(e.Class).To(Equal(tc.class), "%v", err)
					g.Expect(e.RetryAfter).To(Equal(tc.after))
					g.Expect(e.Remedy != "").To(Equal(tc.hasRemedy))
					g.Expect(len(err.Error())).To(BeNumerically("<", 800))
				}
				s.ClearFaults()
				_, err := p.Get(t.Context(), created.Number)
				g.Expect(err).NotTo(HaveOccurred(), "it heals when the cause goes away")
			})
		})
	}
}

// https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
func TestGitHubLimitsWith403(t *testing.T) {
	date := "Mon, 02 Jan 2006 15:04:05 GMT"
	for name, tc := range map[string]struct {
		header http.Header
		body   string
		class  provider.Class
		after  time.Duration
	}{
		"primary":             {header("Date", date, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1136214845"), "API rate limit exceeded", provider.RateLimited, 10 * time.Minute},
		"secondary":           {header("Retry-After", "42", "X-RateLimit-Remaining", "4000"), "You have exceeded a secondary rate limit", provider.RateLimited, 42 * time.Second},
		"secondary, wordless": {header("X-RateLimit-Remaining", "4000"), "You have exceeded a secondary rate limit.", provider.RateLimited, time.Minute},
		"a missing right":     {header("X-RateLimit-Remaining", "4000"), "Resource not accessible by personal access token", provider.Forbidden, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := providertest.New(t, providertest.Options{Type: pipelinesv1.GitHub})
			p := connect(t, pipelinesv1.GitHub, s, nil)
			s.AddFault(providertest.Fault{Status: http.StatusForbidden, Header: tc.header, Body: []byte(`{"message":` + strconv.Quote(tc.body) + `}`)})
			_, err := p.Get(t.Context(), 1)
			e := refusal(t, err)
			g.Expect(e.Class).To(Equal(tc.class))
			g.Expect(e.RetryAfter).To(Equal(tc.after))
			g.Expect(err.Error()).To(ContainSubstring(tc.body))
		})
	}
}

func TestGitHubSingleSignOn(t *testing.T) {
	g := NewWithT(t)
	s := providertest.New(t, providertest.Options{Type: pipelinesv1.GitHub})
	p := connect(t, pipelinesv1.GitHub, s, nil)
	s.AddFault(providertest.Fault{Status: http.StatusForbidden, Header: header("X-GitHub-SSO", "required; url=https://github.test/sso")})
	_, err := p.Get(t.Context(), 1)
	g.Expect(err).To(MatchError(ContainSubstring("single sign-on")))
}

// GitLab answers 401 to those who may read but not merge.
func TestGitLabMayNotMerge(t *testing.T) {
	g := NewWithT(t)
	s := providertest.New(t, providertest.Options{Type: pipelinesv1.GitLab})
	s.SetBranch(base, "base-1")
	s.SetBranch(head, "sha-1")
	p := connect(t, pipelinesv1.GitLab, s, nil)
	created := open(t, p)
	s.AddFault(providertest.Fault{Method: http.MethodPut, Status: http.StatusUnauthorized, Body: []byte(`{"message":"401 Unauthorized"}`)})
	_, err := p.Merge(t.Context(), created.Number, provider.MergeOptions{HeadSHA: "sha-1"})
	g.Expect(err).To(MatchError(provider.ErrForbidden))
	g.Expect(err).NotTo(MatchError(provider.ErrUnauthorized))
}

func TestNotMergeable(t *testing.T) {
	for _, kind := range types {
		t.Run(string(kind), func(t *testing.T) {
			g := NewWithT(t)
			s := providertest.New(t, providertest.Options{Type: kind, Merge: func(_, _, _ string) (string, error) {
				return "", errors.New("a check is pending")
			}})
			s.SetBranch(base, "base-1")
			s.SetBranch(head, "sha-1")
			p := connect(t, kind, s, nil)
			created := open(t, p)
			_, err := p.Merge(t.Context(), created.Number, provider.MergeOptions{HeadSHA: "sha-1"})
			g.Expect(err).To(MatchError(provider.ErrNotMergeable))
		})
	}
}

// Gitea shows git's own output for a conflict, and nothing else.
func TestGiteaMergeConflict(t *testing.T) {
	g := NewWithT(t)
	s := providertest.New(t, providertest.Options{Type: pipelinesv1.Gitea})
	s.SetBranch(base, "base-1")
	s.SetBranch(head, "sha-1")
	p := connect(t, pipelinesv1.Gitea, s, nil)
	created := open(t, p)
	s.AddFault(providertest.Fault{Method: http.MethodPost, Status: http.StatusConflict, Body: []byte(`{"Style":"merge","StdOut":"CONFLICT","StdErr":"","Err":{}}`)})
	_, err := p.Merge(t.Context(), created.Number, provider.MergeOptions{HeadSHA: "sha-1"})
	g.Expect(err).To(MatchError(provider.ErrNotMergeable))
}

// Azure DevOps answers bad tokens with its sign-in page: 203, or a redirect.
func TestAzureDevOpsAsksToSignIn(t *testing.T) {
	for name, fault := range map[string]providertest.Fault{
		"203": {Status: http.StatusNonAuthoritativeInfo, Body: []byte("<html>Sign In</html>")},
		"302": {Status: http.StatusFound, Header: header("Location", "https://spsprodweu.vssps.visualstudio.com/_signin?realm=x")},
	} {
		t.Run(name, func(t *testing.T) {
			s := providertest.New(t, providertest.Options{Type: pipelinesv1.AzureDevOps})
			p := connect(t, pipelinesv1.AzureDevOps, s, nil)
			s.AddFault(fault)
			_, err := p.Get(t.Context(), 1)
			NewWithT(t).Expect(err).To(MatchError(provider.ErrUnauthorized))
		})
	}
}

// The client keeps the first table of resources for ever; a proxy's page must not
// become that.
func TestAzureDevOpsBadTableOfResourcesIsNotKept(t *testing.T) {
	for name, body := range map[string]string{
		"empty":        `{}`,
		"no value":     `{"count":0,"value":[]}`,
		"another":      `{"value":[{"id":"11111111-1111-1111-1111-111111111111","area":"git"}]}`,
		"null entries": `{"value":[{},{"id":"9946fd70-0d40-406e-b686-b4744cbbcc37"}]}`,
		"html":         `<html>`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := providertest.New(t, providertest.Options{Type: pipelinesv1.AzureDevOps})
			s.SetBranch(base, "base-1")
			s.SetBranch(head, "sha-1")
			p := connect(t, pipelinesv1.AzureDevOps, s, nil)
			s.AddFault(providertest.Fault{Method: http.MethodOptions, Times: 1, Status: http.StatusOK, Body: []byte(body)})
			_, err := p.Create(t.Context(), provider.NewPullRequest{Head: head, Base: base, Title: "t"})
			g.Expect(err).To(MatchError(provider.ErrTransient))
			g.Expect(open(t, p).State).To(Equal(provider.Open))
		})
	}
}

// Accepted, but answered with an error or not at all: what took effect is found.
func TestAcceptedButAnsweredWithAnError(t *testing.T) {
	faults := map[string]providertest.Fault{
		"500":     {Status: http.StatusInternalServerError},
		"502":     {Status: http.StatusBadGateway, Body: []byte("<html>")},
		"reset":   {Reset: true},
		"garbage": {Status: http.StatusCreated, Body: []byte("]]")},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
				g := NewWithT(t)
				fault.After, fault.Times = true, 1
				fault.Method = http.MethodPost
				s.AddFault(fault)
				_, err := p.Create(t.Context(), provider.NewPullRequest{Head: head, Base: base, Title: "t", Body: "identity"})
				g.Expect(err).To(MatchError(provider.ErrTransient))
				found := find(t, p)
				g.Expect(found).To(HaveLen(1))
				g.Expect(found[0].Body).To(Equal("identity"))
				g.Expect(s.PullRequests()).To(HaveLen(1))
			})
		})
	}
}

func TestMergedButAnsweredWithAnError(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodPatch} {
			s.AddFault(providertest.Fault{Method: method, After: true, Reset: true})
		}
		_, err := p.Merge(t.Context(), created.Number, provider.MergeOptions{HeadSHA: "sha-1"})
		g.Expect(err).To(MatchError(provider.ErrTransient))
		merged, err := p.Get(t.Context(), created.Number)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(merged.State).To(Equal(provider.Merged))
	})
}

// calls of the whole interface.
func calls(p provider.Provider, number int64) map[string]func(context.Context) error {
	title := "t"
	return map[string]func(context.Context) error{
		"find": func(ctx context.Context) error {
			_, err := p.Find(ctx, provider.Query{Head: head, Base: base})
			return err
		},
		"get": func(ctx context.Context) error { _, err := p.Get(ctx, number); return err },
		"create": func(ctx context.Context) error {
			_, err := p.Create(ctx, provider.NewPullRequest{Head: head, Base: base, Title: title})
			return err
		},
		"update": func(ctx context.Context) error {
			_, err := p.Update(ctx, number, provider.Edit{Title: &title})
			return err
		},
		"merge": func(ctx context.Context) error {
			_, err := p.Merge(ctx, number, provider.MergeOptions{HeadSHA: "sha-1"})
			return err
		},
		"close": func(ctx context.Context) error {
			_, err := p.Close(ctx, number, provider.Closing{Comment: "why"})
			return err
		},
		"review": func(ctx context.Context) error { return p.RequestReviews(ctx, number, reviewers(p.Type())) },
	}
}

func TestNoCallOutlivesItsContext(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		created := open(t, p)
		for name, call := range calls(p, created.Number) {
			t.Run(name, func(t *testing.T) {
				g := NewWithT(t)
				before := len(s.Requests())
				s.AddFault(providertest.Fault{Hang: true})
				defer s.ClearFaults()
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- call(ctx) }()
				g.Eventually(func() int { return len(s.Requests()) }).Should(BeNumerically(">", before))
				cancel()
				var err error
				g.Eventually(done).Should(Receive(&err))
				g.Expect(err).To(MatchError(context.Canceled))
				g.Expect(refusal(t, err).Class).To(Equal(provider.Transient))

				err = call(ctx)
				g.Expect(err).To(MatchError(context.Canceled), "an ended context is not begun with")
			})
		}
	})
}

func TestEachRequestHasItsTime(t *testing.T) {
	for _, kind := range types {
		t.Run(string(kind), func(t *testing.T) {
			g := NewWithT(t)
			s := providertest.New(t, providertest.Options{Type: kind})
			p := connect(t, kind, s, func(o *provider.Options) { o.Timeout = 50 * time.Millisecond })
			s.AddFault(providertest.Fault{Hang: true})
			_, err := p.Get(t.Context(), 1)
			g.Expect(err).To(MatchError(provider.ErrTransient))
			g.Expect(err).To(MatchError(ContainSubstring("did not respond within 50ms")))
			g.Expect(err).NotTo(MatchError(context.DeadlineExceeded), "that would be the caller's")
			var e *provider.Error
			g.Expect(errors.As(err, &e)).To(BeTrue())
			g.Expect(e.TimedOut).To(BeTrue())
		})
	}
}

func TestNobodyThere(t *testing.T) {
	for _, kind := range types {
		t.Run(string(kind), func(t *testing.T) {
			s := providertest.New(t, providertest.Options{Type: kind})
			p := connect(t, kind, s, nil)
			s.Stop()
			_, err := p.Get(t.Context(), 1)
			NewWithT(t).Expect(err).To(MatchError(provider.ErrTransient))
		})
	}
}

// A renamed repository on GitHub: followed within the service, nowhere else.
func TestRedirects(t *testing.T) {
	for _, kind := range types {
		t.Run(string(kind), func(t *testing.T) {
			g := NewWithT(t)
			var leaked string
			elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				leaked = r.Header.Get("Authorization") + r.Header.Get("Private-Token")
			}))
			defer elsewhere.Close()
			s := providertest.New(t, providertest.Options{Type: kind})
			s.SetBranch(base, "base-1")
			s.SetBranch(head, "sha-1")
			p := connect(t, kind, s, nil)
			created := open(t, p)
			for _, status := range []int{301, 302, 303, 307, 308} {
				s.AddFault(providertest.Fault{Status: status, Header: header("Location", elsewhere.URL+"/x")})
				_, err := p.Get(t.Context(), created.Number)
				g.Expect(err).To(SatisfyAny(MatchError(provider.ErrNotFound), MatchError(provider.ErrUnauthorized)))
				_, err = p.Create(t.Context(), provider.NewPullRequest{Head: head, Base: base, Title: "t"})
				g.Expect(err).To(SatisfyAny(MatchError(provider.ErrNotFound), MatchError(provider.ErrUnauthorized)))
				s.ClearFaults()
			}
			g.Expect(leaked).To(BeEmpty())

			// A write must not become a read.
			s.AddFault(providertest.Fault{Method: http.MethodPost, Status: 301, Header: header("Location", "/elsewhere"), Times: 1})
			_, err := p.Create(t.Context(), provider.NewPullRequest{Head: head, Base: base, Title: "t"})
			g.Expect(err).To(MatchError(provider.ErrNotFound))

			// Round and round.
			s.AddFault(providertest.Fault{Method: http.MethodGet, Status: 302, Header: header("Location", "/round")})
			before := len(s.Requests())
			_, err = p.Get(t.Context(), created.Number)
			g.Expect(err).To(MatchError(provider.ErrTransient))
			g.Expect(len(s.Requests()) - before).To(BeNumerically("<", 6))
		})
	}
}

func TestRedirectWithinTheServiceIsFollowed(t *testing.T) {
	g := NewWithT(t)
	s := providertest.New(t, providertest.Options{Type: pipelinesv1.GitHub})
	s.SetBranch(base, "base-1")
	s.SetBranch(head, "sha-1")
	p := connect(t, pipelinesv1.GitHub, s, nil)
	created := open(t, p)
	s.AddFault(providertest.Fault{Method: http.MethodGet, Times: 1, Status: 301, Header: header("Location", "/api/v3/repos/fleet/apps/pulls/1")})
	g.Expect(p.Get(t.Context(), created.Number)).To(Equal(created))
}
