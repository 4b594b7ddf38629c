package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// maxSaid bounds the output of a server during a push that is kept, in bytes.
const maxSaid = 4 << 10

// Push makes a commit the head of a branch. old is the expected head, zero if the branch
// must not exist. The error is Moved if that does not hold at the time of the push.
func (c *Clone) Push(ctx context.Context, branch string, old Hash, made Made) error {
	session, err := c.transport.NewReceivePackSession(c.endpoint, c.auth)
	if err != nil {
		return c.explain(ctx, "push", err)
	}
	defer session.Close()
	offered, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return c.explain(ctx, "push", err)
	}
	ref := plumbing.NewBranchReferenceName(branch)
	if now := offered.References[ref.String()]; now != old {
		return moved(branch)
	}
	request := packp.NewReferenceUpdateRequestFromCapabilities(offered.Capabilities)
	said := &said{}
	if offered.Capabilities.Supports(capability.Sideband64k) {
		if err := request.Capabilities.Set(capability.Sideband64k); err != nil {
			return c.explain(ctx, "push", err)
		}
		request.Progress = said
	}
	request.Commands = []*packp.Command{{Name: ref, Old: old, New: made.Hash}}
	pack := &bytes.Buffer{}
	if _, err := packfile.NewEncoder(pack, c.storage, false).Encode(made.objects, 0); err != nil {
		return &Error{Class: Transient, Op: "push", Message: c.guard.clean(err.Error())}
	}
	request.Packfile = io.NopCloser(pack)
	report, err := session.ReceivePack(ctx, request)
	switch {
	case report != nil:
		return c.reported(report, branch, said)
	case err != nil:
		return c.explain(ctx, "push", err)
	default:
		return &Error{Class: Transient, Op: "push", Message: "the server did not report the result of the push"}
	}
}

func moved(branch string) error {
	return &Error{Class: Moved, Op: "push", Message: "branch " + branch + " was changed in the meantime"}
}

// reported classifies the server's report of the push. Git gives reasons as plain text,
// defined in builtin/receive-pack.c and refs/ of its source.
func (c *Clone) reported(report *packp.ReportStatus, branch string, said *said) error {
	if report.UnpackStatus != "ok" {
		return &Error{Class: Transient, Op: "push", Message: c.guard.clean("the server could not unpack the commit: " + report.UnpackStatus + " " + said.String())}
	}
	for _, status := range report.CommandStatuses {
		if status.Error() == nil {
			continue
		}
		lower := strings.ToLower(status.Status)
		for _, race := range []string{"cannot lock ref", "failed to update ref", "stale info", "fetch first", "incorrect old value", "reference already exists", "failed to lock", "reference conflict"} {
			if strings.Contains(lower, race) {
				return moved(branch)
			}
		}
		return &Error{Class: Refused, Op: "push", Message: c.guard.clean(status.Status + " " + said.String())}
	}
	return nil
}

// said keeps the beginning of a server's output.
type said struct{ bytes.Buffer }

// Write implements io.Writer.
func (s *said) Write(p []byte) (int, error) {
	if room := maxSaid - s.Len(); room > 0 {
		_, _ = s.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// IsMoved reports whether an error has the class Moved.
func IsMoved(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Class == Moved
}
