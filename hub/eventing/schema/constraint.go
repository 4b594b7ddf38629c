package schema

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Constraint on a value of the right data type.
type Constraint struct {
	// Text describes the allowed values, and is the text of the error.
	Text string
	// Allowed are the values of an enumeration; nil for other constraints.
	Allowed []string
	ok      func(value any) bool
}

// Between limits an Int, both ends included.
func Between(low, high int64) Constraint {
	return Constraint{
		Text: fmt.Sprintf("must be set between %d and %d", low, high),
		ok:   func(v any) bool { n := v.(int64); return low <= n && n <= high },
	}
}

// UnlimitedOrFrom requires an Int of at least low, or -1 for no limit.
func UnlimitedOrFrom(low int64) Constraint {
	return Constraint{
		Text: fmt.Sprintf("must be -1 (no limit) or at least %d", low),
		ok:   func(v any) bool { n := v.(int64); return n == -1 || n >= low },
	}
}

// DurationBetween limits a Duration, both ends included.
func DurationBetween(low, high time.Duration) Constraint {
	return Constraint{
		Text: fmt.Sprintf("must be set between %s and %s", short(low), short(high)),
		ok:   func(v any) bool { d := v.(time.Duration); return low <= d && d <= high },
	}
}

// short formats a duration without zero units: 5m, not 5m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// QuantityBetween limits a Quantity of bytes, both ends included.
func QuantityBetween(low, high string) Constraint {
	from, to := resource.MustParse(low), resource.MustParse(high)
	return Constraint{
		Text: fmt.Sprintf("must be set between %s and %s", low, high),
		ok:   func(v any) bool { n := v.(int64); return from.Value() <= n && n <= to.Value() },
	}
}

// UnlimitedOrBytes requires a Quantity of at least low, or -1 for no limit.
func UnlimitedOrBytes(low string) Constraint {
	from := resource.MustParse(low)
	return Constraint{
		Text: fmt.Sprintf("must be -1 (no limit) or at least %s", low),
		ok:   func(v any) bool { n := v.(int64); return n == -1 || n >= from.Value() },
	}
}

// OneOf lists the allowed values of an Enum, or of each entry of a List.
func OneOf(allowed ...string) Constraint {
	return Constraint{
		Text:    "must be one of " + strings.Join(allowed, ", "),
		Allowed: allowed,
		ok:      each(func(s string) bool { return slices.Contains(allowed, s) }),
	}
}

// Matching requires that a String, or each entry of a List, matches a pattern. text is the
// error.
func Matching(pattern, text string) Constraint {
	compiled := regexp.MustCompile(pattern)
	return Constraint{Text: text, ok: each(compiled.MatchString)}
}

// NotEmpty requires that a List has an entry.
func NotEmpty() Constraint {
	return Constraint{Text: "must not be empty", ok: func(v any) bool { return len(v.([]string)) > 0 }}
}

// AtMost limits the number of entries of a List.
func AtMost(n int) Constraint {
	return Constraint{Text: fmt.Sprintf("must have at most %d entries", n), ok: func(v any) bool { return len(v.([]string)) <= n }}
}

// each applies ok to the string of a String, Enum, URL or SecretRef, or to all of a List.
func each(ok func(string) bool) func(any) bool {
	return func(v any) bool {
		if list, several := v.([]string); several {
			return !slices.ContainsFunc(list, func(s string) bool { return !ok(s) })
		}
		return ok(v.(string))
	}
}

// Schemes requires a URL with one of the schemes and a host, without credentials and
// fragment: credentials belong in a Secret.
func Schemes(schemes ...string) Constraint {
	return Constraint{
		Text: "must be a URL without user and password, of scheme " + strings.Join(schemes, ", "),
		ok:   func(v any) bool { return plainURL(v.(string), schemes) },
	}
}

// SeveralOf is Schemes for several URLs, separated by commas.
func SeveralOf(schemes ...string) Constraint {
	return Constraint{
		Text: "must be URLs separated by commas, without user and password, of scheme " + strings.Join(schemes, ", "),
		ok: func(v any) bool {
			for part := range strings.SplitSeq(v.(string), ",") {
				if !plainURL(strings.TrimSpace(part), schemes) {
					return false
				}
			}
			return true
		},
	}
}

func plainURL(text string, schemes []string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && u.User == nil && u.Fragment == "" && slices.Contains(schemes, u.Scheme)
}
