package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// Errors of a confirmation.
var (
	errNoTerminal  = errors.New("standard input is not a terminal, so that nothing can be confirmed: use --dry-run to see the plan, and --yes to confirm it")
	errUnconfirmed = errors.New("not confirmed: nothing was changed")
)

// confirmation is a question that a user answers before a change.
type confirmation struct{ yes bool }

func (s *confirmation) register(f *pflag.FlagSet) {
	f.BoolVar(&s.yes, "yes", false, "confirm the plan without a question")
}

// possible returns an error if no user can answer.
func (s *confirmation) possible(in io.Reader) error {
	file, is := in.(*os.File)
	if s.yes || is && term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return errNoTerminal
}

// ask asks the question, and returns an error unless the answer is yes.
func (s *confirmation) ask(ctx context.Context, in io.Reader, out io.Writer, question string) error {
	if s.yes {
		return nil
	}
	_, _ = fmt.Fprintf(out, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(in).ReadString('\n') // No answer is no.
		answer <- text
	}()
	select {
	case text := <-answer:
		if text = strings.ToLower(strings.TrimSpace(text)); text == "y" || text == "yes" {
			return nil
		}
		return errUnconfirmed
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errUnconfirmed, ctx.Err())
	}
}
