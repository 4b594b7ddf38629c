package pullrequest

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// httpsPort is the port of a host that is named without one.
const httpsPort = "443"

// hostPattern matches a name, a name below "*.", an IPv4 address, or an IPv6 address in
// brackets; with or without a port.
var hostPattern = regexp.MustCompile(`^((\*\.)?[a-z0-9]([a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$`)

// checkHosts returns an error if a host that would get the credentials of a Secret is not
// one that the Secret allows. Without the annotation every host is allowed, unless the
// annotation is required.
func checkHosts(secret *corev1.Secret, repository provider.Repository, required bool) error {
	allowed, has := secret.Annotations[capstanv1.AllowedHostsAnnotation]
	if !has && !required {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return &failure{reason: ReasonHostNotAllowed, err: fmt.Errorf("the Secret %s/%s %s", secret.Namespace, secret.Name, fmt.Sprintf(format, args...))}
	}
	patterns, invalid := patternsOf(allowed)
	if invalid != "" {
		return refuse("has the annotation %s with %q, which is not a host, host:port or *.domain, so its credentials are sent nowhere: correct it",
			capstanv1.AllowedHostsAnnotation, short(invalid))
	}
	for _, host := range credentialHosts(repository) {
		if matchesAny(patterns, host) {
			continue
		}
		if !has {
			return refuse("has no annotation %s, which --require-secret-hosts requires: set it to the hosts that may get the credentials, here %s",
				capstanv1.AllowedHostsAnnotation, shownHost(host))
		}
		return refuse("does not allow its credentials to be sent to the host %s: add the host to its annotation %s, or correct the URL in the Pipeline",
			shownHost(host), capstanv1.AllowedHostsAnnotation)
	}
	return nil
}

// credentialHosts returns every host that gets the credentials, as host:port: that of Git and
// that of the API. Both clients send requests to these two only, and follow no redirect
// elsewhere.
func credentialHosts(r provider.Repository) []string {
	hosts := []string{hostOf(r.CloneURL)}
	if api := hostOf(r.APIURL); api != hosts[0] {
		hosts = append(hosts, api)
	}
	return hosts
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
		port = httpsPort
	}
	return net.JoinHostPort(strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port)
}

// shownHost returns a host as it is written in the annotation: without the default port.
func shownHost(host string) string { return short(strings.TrimSuffix(host, ":"+httpsPort)) }

// patternsOf returns the elements of the annotation as host:port, and the first element that
// is not a pattern.
func patternsOf(annotation string) (patterns []string, invalid string) {
	for _, element := range strings.Split(annotation, ",") {
		element = strings.ToLower(strings.TrimSpace(element))
		switch {
		case element == "":
			continue
		case !hostPattern.MatchString(element):
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
	for _, pattern := range patterns {
		if below, wild := strings.CutPrefix(pattern, "*"); pattern == host || wild && strings.HasSuffix(host, below) && len(host) > len(below) {
			return true
		}
	}
	return false
}
