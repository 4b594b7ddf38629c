package allowedhosts

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/truncate"
)

const (
	// httpsPort is the port of a pattern and of a URL that are written without one.
	httpsPort = "443"
	// maxShown bounds a host or a pattern in an error, in bytes.
	maxShown = 64
)

// ports of URLs that have none, by scheme, in place of httpsPort.
var ports = map[string]string{"http": "80", "nats": "4222", "tls": "4222"}

// pattern matches a name, a name below "*.", an IPv4 address, or an IPv6 address in
// brackets; with or without a port.
var pattern = regexp.MustCompile(`^((\*\.)?[a-z0-9]([a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$`)

// Rule is what a Secret allows. The zero value allows every host.
type Rule struct {
	annotation    string
	has, required bool
}

// Of returns the Rule of a Secret with the annotations. Without the annotation every host is allowed, unless it is
// required (--require-secret-hosts).
func Of(annotations map[string]string, required bool) Rule {
	text, has := annotations[capstanv1.AllowedHostsAnnotation]
	return Rule{annotation: text, has: has, required: required}
}

// Refusal is the error of Check. Its text continues "the Secret NAME".
type Refusal string

// Error implements error.
func (r Refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }

// Check returns a Refusal if the host of a URL is not allowed. Empty URLs are passed over.
func (r Rule) Check(urls ...string) error {
	if !r.has && !r.required {
		return nil
	}
	patterns, invalid := patternsOf(r.annotation)
	if invalid != "" {
		return refuse("has the annotation %s with %q, which is not a host, host:port or *.domain, so its credentials are sent nowhere: correct it",
			capstanv1.AllowedHostsAnnotation, truncate.Bytes(invalid, maxShown))
	}
	for _, raw := range urls {
		host := hostOf(raw)
		switch {
		case raw == "", matchesAny(patterns, host):
			continue
		case !r.has:
			return refuse("has no annotation %s, which --require-secret-hosts requires: set it to the hosts that may get the credentials, here %s",
				capstanv1.AllowedHostsAnnotation, shown(host))
		}
		return refuse("does not allow its credentials to be sent to the host %s: add the host to its annotation %s, or correct the URL",
			shown(host), capstanv1.AllowedHostsAnnotation)
	}
	return nil
}

// hostOf returns the host and the port of a URL, in lower case. A URL that cannot be parsed
// gives a host that no pattern matches.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		if port = ports[u.Scheme]; port == "" {
			port = httpsPort
		}
	}
	return net.JoinHostPort(strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port)
}

// shown returns a host as it is written in the annotation: without the default port.
func shown(host string) string {
	return truncate.Bytes(strings.TrimSuffix(host, ":"+httpsPort), maxShown)
}

// patternsOf returns the elements of the annotation as host:port, and the first element that
// is not a pattern.
func patternsOf(annotation string) (patterns []string, invalid string) {
	for element := range strings.SplitSeq(annotation, ",") {
		element = strings.ToLower(strings.TrimSpace(element))
		switch {
		case element == "":
			continue
		case !pattern.MatchString(element):
			return nil, element
		case !strings.Contains(element[strings.LastIndexByte(element, ']')+1:], ":"):
			element += ":" + httpsPort
		}
		patterns = append(patterns, element)
	}
	return patterns, ""
}

// matchesAny reports whether a host matches one of the patterns. "*.example.com" matches every
// name below example.com, and not example.com itself.
func matchesAny(patterns []string, host string) bool {
	for _, one := range patterns {
		if below, wild := strings.CutPrefix(one, "*"); one == host || wild && strings.HasSuffix(host, below) && len(host) > len(below) {
			return true
		}
	}
	return false
}
