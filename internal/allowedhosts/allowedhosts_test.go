package allowedhosts

import (
	"testing"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// Ports that are not written follow from the scheme of a URL, and are 443 in a pattern.
func TestPorts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		url, allowed string
		// says is part of the error; empty if the host is allowed.
		says string
	}{
		{"https://events.example.com/in", "events.example.com", ""},
		{"http://events.example.com/in", "events.example.com:80", ""},
		{"http://events.example.com/in", "events.example.com", "the host events.example.com:80:"},
		{"nats://nats.example.com", "nats.example.com:4222", ""},
		{"tls://nats.example.com", "nats.example.com", "the host nats.example.com:4222:"},
		{"tls://nats.example.com:443", "nats.example.com", ""},
		{"wss://nats.example.com", "nats.example.com", ""},
		{"https://[2001:db8::1]", "[2001:DB8::1]", ""},
		{"https://events.example.com", "events.example.com:443", ""},
		{"https://user@events.example.com:x/", "*.example.com", "does not allow its credentials"},
		{"", "events.example.com", ""},
	} {
		g := NewWithT(t)
		err := Of(map[string]string{capstanv1.AllowedHostsAnnotation: row.allowed}, true).Check(row.url)
		if row.says == "" {
			g.Expect(err).NotTo(HaveOccurred(), row.url)
			continue
		}
		g.Expect(err).To(MatchError(ContainSubstring(row.says)), row.url)
		g.Expect(err).To(BeAssignableToTypeOf(Refusal("")))
	}
}

// Every URL is judged. Without the annotation all are allowed, unless it is required.
func TestRule(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const a, b = "https://a.example.com", "https://b.example.com"
	one := Of(map[string]string{capstanv1.AllowedHostsAnnotation: "a.example.com"}, false)
	g.Expect(one.Check(a)).To(Succeed())
	g.Expect(one.Check(a, b)).To(MatchError(ContainSubstring("the host b.example.com:")))
	g.Expect(Rule{}.Check(a, b)).To(Succeed())
	g.Expect(Of(nil, false).Check(a, b)).To(Succeed())
	g.Expect(Of(nil, true).Check(a)).To(MatchError(ContainSubstring("has no annotation capstan.dev/allowed-hosts, which --require-secret-hosts requires")))
	g.Expect(Of(nil, true)).NotTo(Equal(Of(nil, false)))
	g.Expect(Of(map[string]string{capstanv1.AllowedHostsAnnotation: "https://a.example.com"}, false).Check(a)).To(MatchError(ContainSubstring("which is not a host")))
}
