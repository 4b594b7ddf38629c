package pullrequest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
)

// Trailers of a commit, and lines of a pull request's body, which name its owner.
const (
	trailerID          = "Promotion-ID"
	trailerNumber      = "Promotion-Number"
	trailerPipeline    = "Pipeline"
	trailerPipelineUID = "Pipeline-UID"
	trailerEnvironment = "Environment"
	trailerRevision    = "Revision"
)

// author of all commits. Its address receives no mail.
var author = gitrepo.Person{Name: "Capstan", Email: "noreply@capstan.dev"}

// Author and message of weave's commits. The hub takes over weave's branches.
const (
	weaveAuthor  = "Promotion Server"
	weaveMessage = "promoting version"
)

// claim is the owner that a commit or a pull request names.
type claim struct {
	// id is strategy.Identity; empty when no owner is named.
	id          string
	number      int64
	pipeline    string // namespace/name
	pipelineUID string
}

// relation of a claim to a promotion.
type relation int

const (
	// unclaimed: it names no owner.
	unclaimed relation = iota
	// mine: it belongs to this promotion.
	mine
	// older: it belongs to a lower number, or to the promotion before its retry.
	older
	// newer: it belongs to a higher number.
	newer
	// foreign: it belongs to another Pipeline that has, or had, the same name.
	foreign
)

var claimLine = regexp.MustCompile(`(?m)^(Promotion-ID|Promotion-Number|Pipeline|Pipeline-UID): ([^\s]+)\r?$`)

// readClaim reads a commit's message or a pull request's body.
func readClaim(text string) claim {
	var c claim
	for _, m := range claimLine.FindAllStringSubmatch(text, -1) {
		switch m[1] {
		case trailerID:
			c.id = m[2]
		case trailerNumber:
			c.number, _ = strconv.ParseInt(m[2], 10, 64)
		case trailerPipeline:
			c.pipeline = m[2]
		case trailerPipelineUID:
			c.pipelineUID = m[2]
		}
	}
	return c
}

func (c claim) relationTo(p *capstanv1.Promotion) relation {
	switch {
	case c.id == "":
		return unclaimed
	case c.id == strategy.Identity(p):
		return mine
	case c.pipelineUID != string(p.Spec.Pipeline.UID):
		return foreign
	case c.number > p.Spec.Number:
		return newer
	default:
		return older
	}
}

// maxNumber is the highest number that the hub accepts from a claim. A person who edits a
// pull request can write any number; the numbers of a Pipeline that is promoted every minute
// reach this one after 4,000 years.
const maxNumber = 1 << 31

// higher returns the error for a claim with a higher number: the highest of it and of the
// error before.
func higher(before error, c claim) error {
	if c.number > maxNumber {
		return fail(ReasonBranchTaken, "the branch or pull request claims the promotion number %d, which the hub cannot have given: remove this line from the pull request, or delete the branch", c.number)
	}
	var known *strategy.OutrankedError
	switch {
	case errors.As(before, &known):
		return &strategy.OutrankedError{Number: max(known.Number, c.number)}
	case before != nil:
		return before
	default:
		return &strategy.OutrankedError{Number: c.number}
	}
}

// stranger reports whether a claim belongs to a Pipeline with another name, whose branch
// happens to have the same name (see plain).
func (c claim) stranger(p *capstanv1.Promotion) bool {
	return c.relationTo(p) == foreign && c.pipeline != pipelineOf(p)
}

func pipelineOf(p *capstanv1.Promotion) string { return p.Namespace + "/" + p.Spec.Pipeline.Name }

// trailers returns the trailers of the promotion's commit, which are also in the body of
// its pull request.
func trailers(p *capstanv1.Promotion) string {
	var b strings.Builder
	for _, t := range []struct{ key, value string }{
		{trailerID, strategy.Identity(p)},
		{trailerNumber, strconv.FormatInt(p.Spec.Number, 10)},
		{trailerPipeline, pipelineOf(p)},
		{trailerPipelineUID, string(p.Spec.Pipeline.UID)},
		{trailerEnvironment, short(p.Spec.Environment)},
		{trailerRevision, short(p.Spec.Revision)},
	} {
		fmt.Fprintf(&b, "%s: %s\n", t.key, t.value)
	}
	return b.String()
}

// message returns the message of the promotion's commit.
func message(p *capstanv1.Promotion) string {
	return title(p) + "\n\n" + trailers(p)
}

// title returns the title of the pull request, which is that of weave unless it is a rollback. Like the
// trailers, it shows the beginning of a longer environment or revision.
func title(p *capstanv1.Promotion) string {
	verb := "Promote"
	if p.Spec.RollbackOf != nil {
		verb = "Roll back"
	}
	return fmt.Sprintf("%s %s/%s in %s to %s", verb, p.Namespace, p.Spec.Pipeline.Name, short(p.Spec.Environment), short(p.Spec.Revision))
}

// oneLine replaces characters that would break the line or change the direction of the
// text around it (bidirectional controls are in category Cf). Environments and revisions
// have no pattern that excludes them.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r == unicode.ReplacementChar {
			return '�'
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
}

// ownCommit reports whether a commit is the hub's and unchanged: a person who amends a
// commit becomes its committer.
func ownCommit(c gitrepo.Commit) bool {
	return c.Author == author && c.Committer == author && readClaim(c.Message).id != ""
}

// weavesCommit reports whether weave's pipeline-controller made a commit.
func weavesCommit(c gitrepo.Commit) bool {
	return c.Author.Name == weaveAuthor && c.Committer.Name == weaveAuthor && strings.TrimSpace(c.Message) == weaveMessage
}

const (
	// maxBranch bounds the name of a branch, in bytes: Git stores it as a file name.
	maxBranch = 200
	// branchHash is the number of bytes of SHA-256 that distinguish branches whose parts
	// had to be changed.
	branchHash = 4
)

// plain matches parts that need no change in a branch's name. Without "--", and without a
// dash at either end, three parts joined by dashes can still collide (a-b and c, a and
// b-c), as weave's do. The claim, which names the Pipeline, distinguishes them.
var plain = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// Branch returns the branch of a promotion: weave's name or, where a part of it is not
// plain, a slug and a hash.
func Branch(p *capstanv1.Promotion) string {
	parts := []string{p.Namespace, p.Spec.Pipeline.Name, p.Spec.Environment}
	name := "promotion-" + strings.Join(parts, "-")
	ordinary := len(name) <= maxBranch && !strings.Contains(name, "..") && !strings.HasSuffix(name, ".lock")
	for _, part := range parts {
		ordinary = ordinary && plain.MatchString(part)
	}
	if ordinary {
		return name
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "/")))
	var slugs []string
	for _, part := range parts {
		if s := slug(part); s != "" {
			slugs = append(slugs, s)
		}
	}
	name = "promotion-" + strings.Join(slugs, "-")
	return strings.TrimRight(name[:min(len(name), maxBranch)], "-") + "-" + hex.EncodeToString(sum[:branchHash])
}

func slug(s string) string {
	mapped := strings.Map(func(r rune) rune {
		if r <= unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '-'
	}, s)
	return strings.Trim(regexp.MustCompile(`-+`).ReplaceAllString(mapped, "-"), "-")
}
