package nats

import (
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// Metadata of a stream that a hub has created. ownedBy has Options.Owner of the backend whose
// settings the stream has: if each backend set its own, the one with the lowest limits would delete
// what the others have stored.
const (
	managedBy = "capstan.dev/managed-by"
	manager   = "capstan"
	ownedBy   = "capstan.dev/owner"
)

// streamConfig returns the configuration of the stream by the keys of spec.config.
func streamConfig(c schema.Config, owner string) jetstream.StreamConfig {
	s := jetstream.StreamConfig{
		Name: c.String("streamName"), Description: "Events of Capstan", Subjects: []string{c.String("subjectPrefix") + ".>"},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Replicas: int(c.Int("streamReplicas")), MaxBytes: c.Int("streamMaxBytes"), MaxMsgs: c.Int("streamMaxMsgs"),
		MaxMsgsPerSubject: c.Int("streamMaxMsgsPerSubject"), MaxAge: c.Duration("streamMaxAge"), Duplicates: c.Duration("streamDuplicateWindow"),
		Metadata: map[string]string{managedBy: manager, ownedBy: owner},
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
// must be as configured. The stream of another backend must have all settings as configured. One
// that no hub has created must have the subjects.
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
	case owned(found, desired):
		return nil
	case found.Metadata[managedBy] != manager && !takes(found.Subjects, desired.Subjects[0]):
		return sink.Errorf(sink.Unavailable, "stream-mismatch", "stream %s was not created by Capstan and does not have the subjects %s: add them to the stream, or choose another streamName", desired.Name, desired.Subjects[0])
	case found.Metadata[managedBy] != manager:
		return nil
	}
	if key := differs(found, desired); key != "" {
		return sink.Errorf(sink.Unavailable, "stream-mismatch", "stream %s belongs to another EventingBackend (%s, as hub/namespace/name), and %s is not the same there: set it to the same value, or choose another streamName; if that EventingBackend no longer exists, remove %s from the metadata of the stream",
			desired.Name, found.Metadata[ownedBy], key, ownedBy)
	}
	return nil
}

// owned returns whether a stream has the settings of this backend, or of none yet.
func owned(found, desired jetstream.StreamConfig) bool {
	owner := found.Metadata[ownedBy]
	return found.Metadata[managedBy] == manager && (owner == "" || owner == desired.Metadata[ownedBy])
}

// takes returns whether the subjects of a stream include ours.
func takes(subjects []string, ours string) bool {
	return slices.Contains(subjects, ours) || slices.Contains(subjects, ">")
}

// differs returns the first key whose value is not that of a stream; empty if there is none.
func differs(found, desired jetstream.StreamConfig) string {
	for _, setting := range []struct {
		key  string
		same bool
	}{
		{"subjectPrefix", takes(found.Subjects, desired.Subjects[0])},
		{"streamReplicas", found.Replicas == desired.Replicas},
		{"streamDiscard", found.Discard == desired.Discard},
		{"streamMaxBytes", found.MaxBytes == desired.MaxBytes},
		{"streamMaxMsgs", found.MaxMsgs == desired.MaxMsgs},
		{"streamMaxMsgsPerSubject", found.MaxMsgsPerSubject == desired.MaxMsgsPerSubject},
		{"streamMaxAge", found.MaxAge == desired.MaxAge},
		{"streamDuplicateWindow", found.Duplicates == desired.Duplicates},
	} {
		if !setting.same {
			return setting.key
		}
	}
	return ""
}

// merged returns the configuration that a stream of this backend should have; nil if it has it,
// or if the stream is not its own. needed is false if only the owner is missing: without
// the right to change streams, it stays missing.
func merged(found, desired jetstream.StreamConfig) (update *jetstream.StreamConfig, needed bool) {
	if !owned(found, desired) {
		return nil, false
	}
	needed = differs(found, desired) != ""
	if !needed && found.Metadata[ownedBy] != "" {
		return nil, false
	}
	m := found
	m.Replicas, m.Discard, m.MaxBytes, m.MaxMsgs = desired.Replicas, desired.Discard, desired.MaxBytes, desired.MaxMsgs
	m.MaxMsgsPerSubject, m.MaxAge, m.Duplicates = desired.MaxMsgsPerSubject, desired.MaxAge, desired.Duplicates
	if !takes(found.Subjects, desired.Subjects[0]) {
		m.Subjects = append(slices.Clone(found.Subjects), desired.Subjects[0])
	}
	m.Metadata = maps.Clone(found.Metadata)
	m.Metadata[ownedBy] = desired.Metadata[ownedBy]
	return &m, needed
}
