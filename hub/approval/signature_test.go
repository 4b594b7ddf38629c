package approval

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

var now = time.Unix(1_800_000_000, 0)

// The format is stable for clients that sign with other tools: it never changes.
func TestSignatureVersion2(t *testing.T) {
	g := NewWithT(t)
	headers := Sign([]byte("key"), http.MethodPost, "/approval/apps/shop/prod/1.2.0", now, nil)
	g.Expect(headers.Get(TimestampHeader)).To(Equal("1800000000"))
	mac := hmac.New(sha256.New, []byte("key"))
	empty := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	fmt.Fprint(mac, "POST\n/approval/apps/shop/prod/1.2.0\n1800000000\n"+empty)
	g.Expect(headers.Get(SignatureHeader)).To(Equal("v2=" + hex.EncodeToString(mac.Sum(nil))))
}

// The commands of docs/operations.md, with openssl.
func TestSignatureByOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	g := NewWithT(t)
	script := `body=$(printf '%s' '{"a":1}' | ` + openssl + ` dgst -sha256 -r | cut -d' ' -f1)
printf 'POST\n%s\n%s\n%s' /promotion/apps/shop/dev 1800000000 "$body" | ` + openssl + ` dgst -sha256 -mac HMAC -macopt hexkey:6b6579 -r | cut -d' ' -f1`
	out, err := exec.CommandContext(t.Context(), "sh", "-c", script).Output()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(Sign([]byte("key"), http.MethodPost, "/promotion/apps/shop/dev", now, []byte(`{"a":1}`)).Get(SignatureHeader)).
		To(Equal("v2=" + strings.TrimSpace(string(out))))
}

func TestInvalidSignatures(t *testing.T) {
	path := "/promotion/apps/shop/dev"
	body := []byte("body")
	r, _ := parseRoute(path)
	good := func() http.Header { return Sign(key, http.MethodPost, path, now, body) }
	weave := func(name string, algorithm func() hash.Hash) http.Header {
		return http.Header{SignatureHeader: {name + "=" + hex.EncodeToString(mac(algorithm, key, body))}}
	}
	for name, tc := range map[string]struct {
		headers http.Header
		legacy  bool
		err     error
	}{
		"good":                    {good(), false, nil},
		"good, weave's accepted":  {good(), true, nil},
		"none":                    {http.Header{}, false, errUnsigned},
		"two":                     {http.Header{SignatureHeader: {"v2=00", "v2=00"}}, false, errUnsigned},
		"no digits":               {http.Header{SignatureHeader: {"v2="}}, false, errMalformed},
		"not hex":                 {http.Header{SignatureHeader: {"v2=xy"}}, false, errMalformed},
		"no scheme":               {http.Header{SignatureHeader: {"00"}}, false, errMalformed},
		"version 3":               {http.Header{SignatureHeader: {"v3=00"}}, false, errMalformed},
		"no time":                 {http.Header{SignatureHeader: good()[SignatureHeader]}, false, errNoTime},
		"time with a sign":        {http.Header{SignatureHeader: good()[SignatureHeader], TimestampHeader: {"+1800000000"}}, false, errNoTime},
		"another time":            {http.Header{SignatureHeader: good()[SignatureHeader], TimestampHeader: {"1800000001"}}, false, errMismatch},
		"late":                    {Sign(key, http.MethodPost, path, now.Add(-Window-time.Second), body), false, errLate},
		"just in time":            {Sign(key, http.MethodPost, path, now.Add(-Window), body), false, nil},
		"early":                   {Sign(key, http.MethodPost, path, now.Add(Window+time.Second), body), false, errLate},
		"long before":             {Sign(key, http.MethodPost, path, time.Unix(-1<<62, 0), body), false, errLate},
		"another key":             {Sign([]byte("x"), http.MethodPost, path, now, body), false, errMismatch},
		"another method":          {Sign(key, http.MethodPut, path, now, body), false, errMismatch},
		"another path":            {Sign(key, http.MethodPost, path+"/", now, body), false, errMismatch},
		"another body":            {Sign(key, http.MethodPost, path, now, nil), false, errMismatch},
		"cut short":               {http.Header{SignatureHeader: {good().Get(SignatureHeader)[:35]}, TimestampHeader: {"1800000000"}}, false, errMismatch},
		"weave's, not accepted":   {weave("sha256", sha256.New), false, errLegacy},
		"weave's sha256":          {weave("sha256", sha256.New), true, nil},
		"weave's sha224":          {weave("sha224", sha256.New224), true, nil},
		"weave's sha384":          {weave("sha384", sha512.New384), true, nil},
		"weave's sha512":          {weave("sha512", sha512.New), true, nil},
		"weave's, another's name": {weave("sha512", sha256.New), true, errMismatch},
		"an unknown algorithm":    {weave("md5", sha256.New), true, errMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s, err := parseSignature(tc.headers, tc.legacy, now)
			if err == nil {
				err = s.check(key, r, http.MethodPost, path, body)
			}
			if tc.err == nil {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(s.digest() == "").To(Equal(s.scheme != version2))
			} else {
				g.Expect(err).To(MatchError(tc.err))
			}
		})
	}
}

func TestRoutes(t *testing.T) {
	for path, want := range map[string]route{
		"/promotion/apps/shop/dev":             {promotionEndpoint, "apps", "shop", "dev", ""},
		"/promotion/apps/shop/dev/":            {promotionEndpoint, "apps", "shop", "dev", ""},
		"/promotion/apps/shop.v2/Prod%20EU":    {promotionEndpoint, "apps", "shop.v2", "Prod EU", ""},
		"/approval/apps/shop/prod/1.2.0+a.b":   {approvalEndpoint, "apps", "shop", "prod", "1.2.0+a.b"},
		"/approval/apps/shop/eu%2Fprod/x%2Fy":  {approvalEndpoint, "apps", "shop", "eu/prod", "x/y"},
		"/approval/apps/shop/prod/main@sha1:0": {approvalEndpoint, "apps", "shop", "prod", "main@sha1:0"},
		"":                                     {},
		"/":                                    {},
		"*":                                    {},
		"promotion/apps/shop/dev":              {},
		"/promotion/apps/shop":                 {},
		"/promotion/apps/shop/dev/more":        {},
		"/promotion//shop/dev":                 {},
		"/promotion/apps/shop/%zz":             {},
		"/promotion/apps/shop/%ff":             {},
		"/promotion/../shop/dev":               {},
		"/promotion/apps/%2e%2e/dev":           {},
		"/promotion/Apps/shop/dev":             {},
		"/approval/apps/shop/prod":             {},
		"/approval/apps/shop/prod//":           {},
		"/approval/apps/shop/prod/1/2":         {},
		"/metrics":                             {},
	} {
		got, ok := parseRoute(path)
		g := NewWithT(t)
		g.Expect(ok).To(Equal(want != route{}), path)
		if ok {
			g.Expect(got).To(Equal(want), path)
		}
	}
}
