package backend_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/backend"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/internal/allowedhosts"
)

// Each type whose user names both a Secret and a host asks whether the Secret allows that host, also a type that is added.
func TestEveryTypeAsksForTheHosts(t *testing.T) {
	configs := map[string]map[string]any{
		"nats":         {"secretRef": "s", "url": "nats://other.example.com"},
		"http":         {"secretRef": "s", "url": "https://other.example.com"},
		"commitstatus": {"secretRef": "s", "provider": "gitea", "repository": "https://other.example.com/a/b", "pipelines": []string{"*/*"}},
	}
	// The Secret of a chat has the address, and a proxy forwards its encrypted connection only.
	const proxy = "proxyUrl"
	g := NewWithT(t)
	types, err := schema.Types(schema.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	openers := backend.Openers(backend.SinkOptions{})
	only := allowedhosts.Of(map[string]string{capstanv1.AllowedHostsAnnotation: "git.example.com"}, false)
	for _, name := range types.Types() {
		s, known := types.Schema(name)
		g.Expect(known).To(BeTrue())
		secret, host := false, false
		for _, key := range s.Keys {
			secret = secret || key.Type == schema.SecretRef
			host = host || key.Type == schema.URL && key.Name != proxy
		}
		if !secret || !host {
			g.Expect(configs).NotTo(HaveKey(name))
			continue
		}
		g.Expect(configs).To(HaveKey(name), "how is it configured?")
		entries, err := eventingv1.NewConfig(configs[name])
		g.Expect(err).NotTo(HaveOccurred())
		config, invalid := s.Resolve(entries)
		g.Expect(invalid).To(BeEmpty(), name)
		_, err = openers[name](backend.Opening{Config: config, Secret: map[string][]byte{"token": []byte(canary)}, Hosts: only, Name: "n/b", Changed: func() {}})
		var refusal allowedhosts.Refusal
		g.Expect(err).To(MatchError(ContainSubstring("to the host other.example.com")), name)
		g.Expect(errors.As(err, &refusal)).To(BeTrue(), name)
	}
}
