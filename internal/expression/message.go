package expression

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"

	"github.com/capstan-hub/capstan/internal/truncate"
)

// maxMessage is the length of a message in bytes.
const maxMessage = 300

// errCost is the error of an expression that reaches a limit of time.
var errCost = fmt.Errorf("it costs more than %d units: compare fewer targets, or do it in fewer steps", maxCost)

// errDeep is the error of a text that the parser gives up.
var errDeep = errors.New("it is nested too deeply: split it into several shorter expressions")

var (
	deep       = regexp.MustCompile(`recursion|lookahead limit`)
	noOverload = regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '(.*)'$`)
	container  = regexp.MustCompile(` \(in container '[^']*'\)`)
	expecting  = regexp.MustCompile(`,? expecting \{.*$`)
	noField    = regexp.MustCompile(`^undefined field '[^']*'$`)
)

// compilation returns the first error of the parser or the type check.
func compilation(issues *cel.Issues) error {
	if len(issues.Errors()) == 0 {
		return oneLine(issues.Err().Error())
	}
	first := issues.Errors()[0]
	if deep.MatchString(first.Message) {
		return errDeep
	}
	text := container.ReplaceAllString(strings.TrimSpace(first.Message), "")
	text = expecting.ReplaceAllString(text, "")
	text = strings.Replace(text, "Syntax error:", "syntax error:", 1)
	if found := noOverload.FindStringSubmatch(text); found != nil {
		name := found[1]
		if operator, ok := operators.FindReverse(name); ok && operator != "" {
			name = operator
		}
		text = fmt.Sprintf("'%s' does not take %s", name, found[2])
	}
	if noField.MatchString(text) {
		text += ": a target has " + strings.Join(fieldNames, ", ")
	}
	return at(text, first.Location)
}

// evaluation returns the error of an evaluation, with its place.
func (e *Expression) evaluation(err error) error {
	var cancelled interpreter.EvalCancelledError
	if errors.Is(err, errCost) || errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		return errCost
	}
	var failed *types.Err
	if errors.As(err, &failed) {
		return at(failed.Error(), e.info.GetStartLocation(failed.NodeID()))
	}
	return oneLine(err.Error())
}

// at is an error at a place of the text.
func at(text string, place common.Location) error {
	if place == nil || place.Line() < 1 || place.Column() < 0 {
		return oneLine(text)
	}
	where := fmt.Sprintf(" (column %d)", place.Column()+1)
	if place.Line() > 1 {
		where = fmt.Sprintf(" (line %d, column %d)", place.Line(), place.Column()+1)
	}
	return errors.New(clean(text, maxMessage-len(where)) + where)
}

func oneLine(text string) error { return errors.New(clean(text, maxMessage)) }

// clean returns a text in one line, of at most limit bytes.
func clean(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, text)
	return truncate.Bytes(text, limit)
}
