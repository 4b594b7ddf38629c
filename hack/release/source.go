package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// source is the commit that is built.
type source struct {
	// revision is the commit's full hash, with the suffix -modified if the checkout has changes.
	// It is empty outside a checkout.
	revision string
	// describe is what git describe prints, or devel outside a checkout.
	describe string
	// time is the time of the commit, or SOURCE_DATE_EPOCH. It is 1980-01-01, the first time that
	// a ZIP file can have, where neither is known.
	time time.Time
}

// readSource reads the commit of a checkout. An archive of the source without Git's history is
// no error.
func readSource(ctx context.Context, root string) (source, error) {
	s := source{describe: "devel", time: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	git := func(args ...string) (string, bool) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err == nil
	}
	if revision, found := git("rev-parse", "HEAD"); found {
		s.revision = revision
		if status, found := git("status", "--porcelain"); found && status != "" {
			s.revision += "-modified"
		}
		if describe, found := git("describe", "--tags", "--always", "--dirty=-modified"); found {
			s.describe = describe
		}
		if seconds, found := git("log", "-1", "--format=%ct"); found {
			n, err := strconv.ParseInt(seconds, 10, 64)
			if err != nil {
				return source{}, fmt.Errorf("the time of the commit: %w", err)
			}
			s.time = time.Unix(n, 0).UTC()
		}
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		n, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return source{}, fmt.Errorf("SOURCE_DATE_EPOCH must be seconds since 1970, such as 1767225600: %w", err)
		}
		s.time = time.Unix(n, 0).UTC()
	}
	return s, nil
}
