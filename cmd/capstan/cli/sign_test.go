package cli

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/approval"
)

func TestSignPrintsHeaders(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	s := signing{keyFile: stdin, output: outputHeaders, method: http.MethodPost}
	g.Expect(s.run("http://hub:8082/approval/apps/shop/Prod%20EU/1.2.0", now, strings.NewReader("key"), &out)).To(Succeed())
	want := approval.Sign([]byte("key"), http.MethodPost, "/approval/apps/shop/Prod%20EU/1.2.0", now, nil)
	g.Expect(out.String()).To(Equal("X-Signature: " + want.Get("X-Signature") + "\nX-Signature-Timestamp: 1800000000\n"))
}

// A shell and curl make a call from the output of sign that the hub accepts as signed.
func TestSignForCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	g := NewWithT(t)
	dir := t.TempDir()
	keyFile, bodyFile := filepath.Join(dir, "key"), filepath.Join(dir, "it's a body.json")
	g.Expect(os.WriteFile(keyFile, []byte("key"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(bodyFile, []byte(`{"a":1}`+"\n"), 0o600)).To(Succeed())
	type call struct {
		path        string
		given, want string // signatures
	}
	called := make(chan call, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		var want http.Header
		at := time.Now()
		for d := range 120 { // It was signed within the last two minutes.
			want = approval.Sign([]byte("key"), r.Method, r.URL.EscapedPath(), at.Add(-time.Duration(d)*time.Second), body.Bytes())
			if want.Get("X-Signature-Timestamp") == r.Header.Get("X-Signature-Timestamp") {
				break
			}
		}
		called <- call{r.URL.EscapedPath(), r.Header.Get("X-Signature"), want.Get("X-Signature")}
	}))
	defer server.Close()
	const escaped = "/approval/apps/shop/Prod%20EU/1.2.0+a'b$HOME"
	run := func(args ...string) string {
		var out, errOut bytes.Buffer
		g.Expect(Main(context.Background(), append([]string{"sign", server.URL + escaped, "--key-file=" + keyFile}, args...), &out, &errOut)).To(BeZero(), errOut.String())
		return out.String()
	}
	expectSigned := func() {
		var got call
		g.Expect(called).To(Receive(&got))
		g.Expect(got.path).To(Equal(escaped))
		g.Expect(got.given).To(And(HavePrefix("v2="), Equal(got.want)))
	}

	command := run("--output=curl", "--body-file="+bodyFile)
	g.Expect(exec.CommandContext(t.Context(), "sh", "-c", command).Run()).To(Succeed(), command)
	expectSigned()

	// The pipe of the help and of docs/operations.md.
	headers := run()
	pipe := exec.CommandContext(t.Context(), "curl", "-s", "--path-as-is", "-X", "POST", "-H", "@-", server.URL+escaped)
	pipe.Stdin = strings.NewReader(headers)
	g.Expect(pipe.Run()).To(Succeed())
	expectSigned()
}

func TestSignMistakes(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	NewWithT(t).Expect(os.WriteFile(empty, nil, 0o600)).To(Succeed())
	const url = "http://hub/approval/a/b/c/d"
	for _, tc := range []struct {
		args []string
		says string
	}{
		{nil, "accepts 1 arg"},
		{[]string{url}, "--key-file: name the file"},
		{[]string{"/approval/a/b/c/d", "--key-file=" + empty}, "is not an http:// or https:// URL"},
		{[]string{"http://hub", "--key-file=" + empty}, "has no path"},
		{[]string{"http://hub/%zz", "--key-file=" + empty}, "the URL is invalid"},
		{[]string{url, "--key-file=" + empty}, "is empty"},
		{[]string{url, "--key-file=/does/not/exist"}, "/does/not/exist"},
		{[]string{url, "--key-file=-", "--body-file=-"}, "cannot both be standard input"},
		{[]string{url, "--key-file=" + empty, "--body-file=-", "--output=curl"}, "name a file"},
		{[]string{url, "--key-file=" + empty, "--output=json"}, `"json" is not one of headers, curl`},
		{[]string{url, "--key=secret"}, "unknown flag"},
	} {
		var out, errOut bytes.Buffer
		g := NewWithT(t)
		g.Expect(Main(context.Background(), append([]string{"sign"}, tc.args...), &out, &errOut)).To(Equal(1))
		g.Expect(errOut.String()).To(ContainSubstring(tc.says))
		g.Expect(out.String()).To(BeEmpty())
	}
}
