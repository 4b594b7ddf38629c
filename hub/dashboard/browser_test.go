package dashboard

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"

	. "github.com/onsi/gomega"
)

// browser returns a client that keeps cookies and follows no redirect.
func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	w.Expect(err).NotTo(HaveOccurred())
	return &browser{w: w, client: &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

type browser struct {
	w      *world
	client *http.Client
}

type answer struct {
	Code   int
	Body   string
	Header http.Header
}

func (b *browser) do(method, path string, form url.Values, header http.Header) answer {
	b.w.t.Helper()
	request, err := http.NewRequestWithContext(b.w.t.Context(), method, b.w.url+path, strings.NewReader(form.Encode()))
	b.w.Expect(err).NotTo(HaveOccurred())
	if header != nil {
		request.Header = header.Clone()
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := b.client.Do(request)
	b.w.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	b.w.Expect(err).NotTo(HaveOccurred())
	return answer{response.StatusCode, string(said), response.Header}
}

func (b *browser) get(path string) answer {
	b.w.t.Helper()
	return b.do(http.MethodGet, path, nil, nil)
}

// signIn with a token.
func (b *browser) signIn(token string) answer {
	b.w.t.Helper()
	return b.do(http.MethodPost, "/signin", url.Values{"token": {token}, "next": {"/pipelines"}}, nil)
}

var field = regexp.MustCompile(`name="(csrf|uid|newest)"(?: form="act")? value="([^"]*)"`)

// fields returns the hidden fields of a page's forms.
func (a answer) fields() url.Values {
	all := url.Values{}
	for _, found := range field.FindAllStringSubmatch(a.Body, -1) {
		all.Set(found[1], found[2])
	}
	return all
}
