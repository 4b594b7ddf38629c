package nats

import (
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// Metadata of a stream that the hub has made.
const (
	managedBy = "capstan.dev/managed-by"
	manager   = "capstan"
)

// streamConfig as the keys say.
func streamConfig(c schema.Config) jetstream.StreamConfig {
	s := jetstream.StreamConfig{
		Name: c.String("streamName"), Description: "Events of Capstan", Subjects: []string{c.String("subjectPrefix") + ".>"},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Replicas: int(c.Int("streamReplicas")), MaxBytes: c.Int("streamMaxBytes"), MaxMsgs: c.Int("streamMaxMsgs"),
		MaxMsgsPerSubject: c.Int("streamMaxMsgsPerSubject"), MaxAge: c.Duration("streamMaxAge"), Duplicates: c.Duration("streamDuplicateWindow"),
		Metadata: map[string]string{managedBy: manager},
	}
	if c.String("streamStorage") == "memory" {
		s.Storage = jetstream.MemoryStorage
	}
	if c.String("streamRetention") == "interest" {
		s.Retention = jetstream.InterestPolicy
	}
	if c.String("streamDiscard") == "new" {
		s.Discard = jetstream.DiscardNew
	}
	return s
}

// fits tells whether a stream that is there can be used: what cannot be changed must be
// as configured, and it must take our subjects if we may not change it.
func fits(found, wanted jetstream.StreamConfig) error {
	mismatch := func(key string, is, want any) error {
		return sink.Errorf(sink.Unavailable, "stream-mismatch", "stream %s has %s %v, not %v, which cannot be changed: set the key, or choose another streamName", wanted.Name, key, is, want)
	}
	switch {
	case found.Storage != wanted.Storage:
		return mismatch("streamStorage", found.Storage, wanted.Storage)
	case found.Retention != wanted.Retention:
		return mismatch("streamRetention", found.Retention, wanted.Retention)
	case found.Sealed:
		return mismatch("the state", "sealed", "open")
	case found.Metadata[managedBy] != manager && !takes(found.Subjects, wanted.Subjects[0]):
		return sink.Errorf(sink.Unavailable, "stream-mismatch", "stream %s was made by somebody else and does not take the subjects %s: add them to it, or choose another streamName", wanted.Name, wanted.Subjects[0])
	}
	return nil
}

// takes tells whether one of the subjects of a stream is ours, or all.
func takes(subjects []string, ours string) bool {
	return slices.Contains(subjects, ours) || slices.Contains(subjects, ">")
}

// merged is the configuration that a stream of the hub's should have; nil when it has it,
// or is not the hub's.
func merged(found, wanted jetstream.StreamConfig) *jetstream.StreamConfig {
	if found.Metadata[managedBy] != manager {
		return nil
	}
	m := found
	m.Replicas, m.Discard, m.MaxBytes, m.MaxMsgs = wanted.Replicas, wanted.Discard, wanted.MaxBytes, wanted.MaxMsgs
	m.MaxMsgsPerSubject, m.MaxAge, m.Duplicates = wanted.MaxMsgsPerSubject, wanted.MaxAge, wanted.Duplicates
	if !takes(found.Subjects, wanted.Subjects[0]) {
		m.Subjects = append(slices.Clone(found.Subjects), wanted.Subjects[0])
	}
	m.Metadata = maps.Clone(found.Metadata)
	same := m.Replicas == found.Replicas && m.Discard == found.Discard && m.MaxBytes == found.MaxBytes && m.MaxMsgs == found.MaxMsgs &&
		m.MaxMsgsPerSubject == found.MaxMsgsPerSubject && m.MaxAge == found.MaxAge && m.Duplicates == found.Duplicates &&
		len(m.Subjects) == len(found.Subjects)
	if same {
		return nil
	}
	return &m
}
