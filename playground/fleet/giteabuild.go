package fleet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/capstan-hub/capstan/playground/process"
)

const (
	giteaBuildLog = "gitea-build.log"
	// buildPollEvery is the time between two reads of the build's log.
	buildPollEvery = 500 * time.Millisecond
	// moduleDownload begins a line about one module of hundreds.
	moduleDownload = "go: downloading"
)

// giteaBuild is a program that puts Gitea into bin/ while the first chapters are played.
// The teardown of the fleet ends it.
type giteaBuild struct {
	process *process.Process
	log     string
}

// startGiteaBuild starts the program; without one, Gitea must be there.
func startGiteaBuild(program string, files *files, down *teardown) (*giteaBuild, error) {
	if program == "" {
		return nil, nil //nolint:nilnil // There is nothing to wait for, which wait knows.
	}
	b := &giteaBuild{log: files.track(giteaBuildLog)}
	var err error
	if b.process, err = process.Start(process.Options{Path: program, Log: b.log}); err != nil {
		return nil, err
	}
	down.add(func() error {
		select {
		case <-b.process.Ended():
			return nil // wait has reported a failure.
		default:
			return b.process.Kill()
		}
	})
	return b, nil
}

// wait until Gitea is there. What the program prints meanwhile is printed to out: a line
// every 20 s at least.
func (b *giteaBuild) wait(ctx context.Context, out io.Writer) error {
	if b == nil {
		return nil
	}
	if !b.ended() {
		say(out, "\nWaiting for Gitea, which the next chapter needs:")
		if err := b.follow(ctx, out); err != nil {
			return err
		}
	}
	if code := b.process.ExitCode(); code != 0 {
		return fmt.Errorf("providing Gitea ended with code %d; its last lines:\n%s", code, b.process.Tail())
	}
	return nil
}

func (b *giteaBuild) ended() bool {
	select {
	case <-b.process.Ended():
		return true
	default:
		return false
	}
}

// follow prints the last line so far, and those that the program prints until it ends.
func (b *giteaBuild) follow(ctx context.Context, out io.Writer) error {
	lines, offset, err := linesFrom(b.log, 0)
	if err != nil {
		return err
	}
	lines = lines[max(0, len(lines)-1):]
	ticker := time.NewTicker(buildPollEvery)
	defer ticker.Stop()
	for ended := false; ; {
		for _, line := range lines {
			say(out, "      %s", line)
		}
		if ended {
			return nil
		}
		select {
		case <-ticker.C:
		case <-b.process.Ended():
		case <-ctx.Done():
			return ctx.Err()
		}
		ended = b.ended()
		if lines, offset, err = linesFrom(b.log, offset); err != nil {
			return err
		}
	}
}

// linesFrom returns the whole lines of a file from an offset, and the offset after them.
func linesFrom(path string, offset int64) ([]string, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("reading the log of Gitea's build: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, 0, fmt.Errorf("reading the log of Gitea's build: %w", err)
	}
	var lines []string
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadString('\n')
		if err != nil {
			// A line that is not complete is read next time.
			return lines, offset, nil //nolint:nilerr // io.EOF.
		}
		offset += int64(len(line))
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, moduleDownload) {
			lines = append(lines, line)
		}
	}
}
