package nats

import (
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// Metadata of a stream that a hub has created.
const (
	managedBy = "capstan.dev/managed-by"
	manager   = "capstan"
)

// streamConfig returns the configuration of the stream by the keys of spec.config.
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

// fits returns an error if an existing stream cannot be used. Settings that cannot be changed
// must be as configured. A stream that no hub has created must already have the subjects.
func fits(found, desired jetstream.StreamConfig) error {
	mismatch := func(key string, is, want any) error {
		return sink.Errorf(sink.Unavailable, "stream-mismatch", "stream %s has %s %v, not %v, and this cannot be changed: set the key to the value of the stream, or choose another streamName", desired.Name, key, is, want)
	}
	switch {
	case found.Storage != desired.Storage:
		return mismatch("streamStorage", found.Storage, desired.Storage)
	case found.Retention != desired.Retention:
		return mismatch("streamRetention", found.Retention, desired.Retention)
	case found.Sealed:
		return mismatch("the state", "sealed", "open")
	case found.Metadata[managedBy] != manager && !takes(found.Subjects, desired.Subjects[0]):
		return sink.Errorf(sink.Unavailable, "stream-mismatch", "stream %s was not created by Capstan and does not have the subjects %s: add them to the stream, or choose another streamName", desired.Name, desired.Subjects[0])
	}
	return nil
}

// takes returns whether the subjects of a stream include ours.
func takes(subjects []string, ours string) bool {
	return slices.Contains(subjects, ours) || slices.Contains(subjects, ">")
}

// merged returns the configuration that a stream of a hub should have; nil if it has it, or if
// no hub has created it.
func merged(found, desired jetstream.StreamConfig) *jetstream.StreamConfig {
	if found.Metadata[managedBy] != manager {
		return nil
	}
	m := found
	m.Replicas, m.Discard, m.MaxBytes, m.MaxMsgs = desired.Replicas, desired.Discard, desired.MaxBytes, desired.MaxMsgs
	m.MaxMsgsPerSubject, m.MaxAge, m.Duplicates = desired.MaxMsgsPerSubject, desired.MaxAge, desired.Duplicates
	if !takes(found.Subjects, desired.Subjects[0]) {
		m.Subjects = append(slices.Clone(found.Subjects), desired.Subjects[0])
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
