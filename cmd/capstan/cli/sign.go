package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-hub/capstan/hub/approval"
)

// Outputs of sign.
const (
	outputHeaders = "headers"
	outputCurl    = "curl"

	// stdin is the name of a file that is standard input.
	stdin = "-"

	// maxKey in bytes is larger than any HMAC key; it bounds the memory for a wrong file.
	maxKey = 64 << 10
)

var outputs = []string{outputHeaders, outputCurl}

// signing are the values of sign's flags.
type signing struct {
	keyFile, bodyFile, output, method string
}

func newSign() *cobra.Command {
	var s signing
	c := &cobra.Command{
		Use:   "sign URL --key-file=FILE",
		Short: "Sign a call of the promotion hook",
		Long: `Sign prints the headers of a call of the hub's /promotion or /approval. They are valid
for ` + approval.Window.String() + `. The key is the value of ` + approval.SecretKey + ` in the Secret that
promotion.strategy.secretRef names, byte for byte: a line break at the end of the file is
part of it. Sign reads the key from a file or from standard input, not from the command
line, which other users of the machine can see.`,
		Example: `  kubectl -n apps get secret shop-hmac -o jsonpath='{.data.hmac-key}' | base64 -d >key

  # Approve 1.2.0 for prod. curl reads the headers from standard input.
  url=https://capstan.example.org/approval/apps/shop/prod/1.2.0
  capstan sign "$url" --key-file=key | curl -i -X POST -H @- "$url"

  # Print the command that reports a revision.
  capstan sign https://capstan.example.org/promotion/apps/shop/dev --key-file=key --body-file=event.json --output=curl`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return s.run(args[0], time.Now(), c.InOrStdin(), c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&s.keyFile, "key-file", "", "file with the HMAC key; - for standard input")
	f.StringVar(&s.bodyFile, "body-file", "", "file with the body of the call; - for standard input; when empty, the call has no body")
	f.StringVar(&s.output, "output", outputHeaders, "output: "+strings.Join(outputs, ", or the command of "))
	f.StringVar(&s.method, "method", http.MethodPost, "method of the call")
	return c
}

func (s *signing) run(target string, now time.Time, in io.Reader, out io.Writer) error {
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return fmt.Errorf("the URL is invalid: %w", err)
	case u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return fmt.Errorf("%q is not an http:// or https:// URL, such as http://capstan-hub-hook.capstan-system/approval/NAMESPACE/PIPELINE/ENVIRONMENT/REVISION", target)
	case u.EscapedPath() == "":
		return fmt.Errorf("%q has no path: append /approval/NAMESPACE/PIPELINE/ENVIRONMENT/REVISION or /promotion/NAMESPACE/PIPELINE/ENVIRONMENT", target)
	case !slices.Contains(outputs, s.output):
		return fmt.Errorf("--output: %q is not one of %s", s.output, strings.Join(outputs, ", "))
	case s.keyFile == "":
		return errors.New("--key-file: name the file with the HMAC key, or - for standard input")
	case s.keyFile == stdin && s.bodyFile == stdin:
		return errors.New("--key-file and --body-file cannot both be standard input")
	case s.bodyFile == stdin && s.output == outputCurl:
		return errors.New("--output=curl: the command cannot read the body from the same standard input; name a file")
	}
	key, err := read(s.keyFile, in, maxKey)
	if err != nil {
		return fmt.Errorf("--key-file: %w", err)
	}
	if len(key) == 0 {
		return fmt.Errorf("--key-file: %s is empty", s.keyFile)
	}
	var body []byte
	if s.bodyFile != "" {
		if body, err = read(s.bodyFile, in, approval.MaxBody); err != nil {
			return fmt.Errorf("--body-file: %w", err)
		}
	}
	headers := approval.Sign(key, s.method, u.EscapedPath(), now, body)
	if s.output == outputCurl {
		_, err = io.WriteString(out, s.curl(u, headers)+"\n")
		return err
	}
	for _, name := range approval.SignedHeaders {
		if _, err := fmt.Fprintf(out, "%s: %s\n", name, headers.Get(name)); err != nil {
			return err
		}
	}
	return nil
}

// curl returns the command that makes the call.
func (s *signing) curl(u *url.URL, headers http.Header) string {
	words := []string{"curl", "-i", "--path-as-is", "-X", quote(s.method)}
	for _, name := range approval.SignedHeaders {
		words = append(words, "-H", quote(name+": "+headers.Get(name)))
	}
	if s.bodyFile != "" {
		words = append(words, "-H", quote("Content-Type: application/json"), "--data-binary", quote("@"+s.bodyFile))
	}
	return strings.Join(append(words, quote(u.String())), " ")
}

// quote quotes a word for a POSIX shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// read reads a file, or standard input, of at most limit bytes.
func read(name string, in io.Reader, limit int64) ([]byte, error) {
	if name != stdin {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	raw, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return raw, nil
}
