package nats_test

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/nats"
)

// TestRestart: a restart keeps address and streams.
func TestRestart(t *testing.T) {
	leaks.AtEnd(t)
	g := NewWithT(t)
	s, err := nats.Start(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { s.Stop() }()
	address := s.URL()
	client, closed, err := s.Inside()
	g.Expect(err).NotTo(HaveOccurred())
	_, err = client.CreateStream(t.Context(), jetstream.StreamConfig{Name: "news", Subjects: []string{"news.>"}})
	g.Expect(err).NotTo(HaveOccurred())
	for _, text := range []string{"one", "two", "three"} {
		_, err = client.Publish(t.Context(), "news.today", []byte(text))
		g.Expect(err).NotTo(HaveOccurred())
	}
	of, err := client.Stream(t.Context(), "news")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(of.DeleteMsg(t.Context(), 2)).To(Succeed())
	closed()

	g.Expect(s.Restart()).To(Succeed())
	g.Expect(s.URL()).To(Equal(address))
	all, err := s.Messages(t.Context(), "news")
	g.Expect(err).NotTo(HaveOccurred())
	var texts []string
	for _, m := range all {
		texts = append(texts, string(m.Data))
	}
	g.Expect(texts).To(Equal([]string{"one", "three"}))
	_, err = s.Messages(t.Context(), "old")
	g.Expect(err).To(MatchError(jetstream.ErrStreamNotFound))

	g.Expect(s.Change(func(o *server.Options) { o.JetStream, o.Port = false, 1 })).To(Succeed())
	g.Expect(s.URL()).To(Equal(address))
	_, err = s.Messages(t.Context(), "news")
	g.Expect(err).To(MatchError(natsgo.ErrNoResponders))
	g.Expect(s.Change(func(o *server.Options) { o.JetStream = true })).To(Succeed())
	all, err = s.Messages(t.Context(), "news")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveLen(2), "the files are the same")
}
