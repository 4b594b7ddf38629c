package pullrequest_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
)

// source is a manifest that selects a source by the value of a field.
func source(ns, field, value string) string {
	return fmt.Sprintf("kind: OCIRepository\nmetadata: {name: web}\nspec:\n  ref:\n    %s: \"%s\" # {\"$promotion\": \"%s:web:prod\"}\n", field, value, ns)
}

// What Flux reports of a source is no value of any field that selects one. Such a pull
// request is not opened: after its merge the source would find nothing.
func TestARevisionThatNoFieldTakesIsNotWritten(t *testing.T) {
	t.Parallel()
	commit, digest := strings.Repeat("9f86d081", 5), strings.Repeat("0cc9a844", 8)
	for name, tc := range map[string]struct {
		field, revision string
		written         bool
	}{
		"a branch and a commit":      {"commit", "main@sha1:" + commit, false},
		"a tag and a commit":         {"tag", "v1.1.0@sha1:" + commit, false},
		"a commit":                   {"commit", "sha1:" + commit, false},
		"a tag and a digest":         {"tag", "v1.1.0@sha256:" + digest, false},
		"the same at a digest":       {"digest", "v1.1.0@sha256:" + digest, false},
		"a commit at a digest":       {"digest", "sha1:" + commit, false},
		"a digest at a tag":          {"tag", "sha256:" + digest, false},
		"a digest at a digest":       {"digest", "sha256:" + digest, true},
		"a tag":                      {"tag", "v1.1.0", true},
		"a commit without algorithm": {"commit", commit, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, services[0])
			s.Commit(gittest.Base, "a source", map[string]string{manifest: source(s.ns, tc.field, "old")})
			p := s.promotion(1, tc.revision)
			p.Spec.App.APIVersion, p.Spec.App.Kind = "kustomize.toolkit.fluxcd.io/v1", "Kustomization"
			if tc.written {
				g.Expect(s.promote(p).State).To(Equal(strategy.Open))
				g.Expect(s.File(s.branch(), manifest)).To(Equal(source(s.ns, tc.field, tc.revision)))
				return
			}
			_, err := s.Promote(t.Context(), p, always)
			expectReason(g, err, "UnwritableRevision", fmt.Sprintf("%s line 5 on branch %s: revision %s of Kustomization web cannot be written to the field %q", manifest, gittest.Base, tc.revision, tc.field))
			g.Expect(err.Error()).To(ContainSubstring("with the strategy notification"))
			g.Expect(s.pulls()).To(BeEmpty())
			g.Expect(s.Branches()).To(Equal([]string{gittest.Base}), "nothing is pushed")
		})
	}
}

// A marker says which part of the revision is written, as Flux's $imagepolicy does.
func TestThePartThatTheMarkerRequestsIsWritten(t *testing.T) {
	t.Parallel()
	commit, digest := strings.Repeat("9f86d081", 5), strings.Repeat("0cc9a844", 8)
	for name, tc := range map[string]struct{ part, revision, want, problem string }{
		"the commit of a branch": {"commit", "main@sha1:" + commit, commit, ""},
		"the commit of a commit": {"commit", "sha1:" + commit, commit, ""},
		"a tag":                  {"tag", "v1.1.0@sha1:" + commit, "v1.1.0", ""},
		"the tag of an artifact": {"tag", "6.5.0@sha256:" + digest, "6.5.0", ""},
		"a digest":               {"digest", "6.5.0@sha256:" + digest, "sha256:" + digest, ""},
		"a version":              {"tag", "6.5.0", "6.5.0", ""},
		"no such commit":         {"commit", "6.5.0@sha256:" + digest, "", "has no commit; write one of what it has into the marker: [tag digest]"},
		"no such digest":         {"digest", "main@sha1:" + commit, "", "has no digest; write one of what it has into the marker: [tag commit]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, services[0])
			marked := func(value string) string {
				return strings.Replace(source(s.ns, tc.part, value), ":prod\"", ":prod:"+tc.part+"\"", 1)
			}
			s.Commit(gittest.Base, "a source", map[string]string{manifest: marked("old")})
			p := s.promotion(1, tc.revision)
			p.Spec.App.APIVersion, p.Spec.App.Kind = "kustomize.toolkit.fluxcd.io/v1", "Kustomization"
			if tc.problem == "" {
				g.Expect(s.promote(p).State).To(Equal(strategy.Open))
				g.Expect(s.File(s.branch(), manifest)).To(Equal(marked(tc.want)))
				return
			}
			_, err := s.Promote(t.Context(), p, always)
			expectReason(g, err, "UnwritableRevision", tc.problem)
			g.Expect(s.pulls()).To(BeEmpty())
			g.Expect(s.Branches()).To(Equal([]string{gittest.Base}), "nothing is pushed")
		})
	}
}

// A commit that differs from the one in Git only in what promotions wrote is not promoted; one
// that changes anything else is.
func TestACommitThatBringsNothingNew(t *testing.T) {
	t.Parallel()
	g, s := NewWithT(t), newScene(t, services[0])
	marked := func(env, value string) string {
		return strings.Replace(source(s.ns, "commit", value), ":prod\"", ":"+env+":commit\"", 1)
	}
	first := s.Commit(gittest.Base, "an application", map[string]string{"apps/web.yaml": "replicas: 1\n", manifest: marked("prod", "old"), "staging.yaml": marked("staging", "old")})
	s.Commit(gittest.Base, "promoted into prod", map[string]string{manifest: marked("prod", first)})
	merged := s.Commit(gittest.Base, "promoted into staging", map[string]string{"staging.yaml": marked("staging", first)})
	result := s.promote(s.promotion(1, "main@sha1:"+merged))
	g.Expect(result.State).To(Equal(strategy.Unchanged))
	g.Expect(result.Message).To(Equal("the commit differs from the one in Git only in what promotions wrote"))
	g.Expect(s.pulls()).To(BeEmpty())
	g.Expect(s.Branches()).To(Equal([]string{gittest.Base}), "nothing is pushed")

	changed := s.Commit(gittest.Base, "a change", map[string]string{"apps/web.yaml": "replicas: 2\n"})
	g.Expect(s.promote(s.promotion(2, "main@sha1:"+changed)).State).To(Equal(strategy.Open))
	g.Expect(s.File(s.branch(), manifest)).To(Equal(marked("prod", changed)))
}
