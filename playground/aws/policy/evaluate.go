package policy

import (
	"slices"
	"strings"
)

// Principal that makes a Request: a service, or an identity of an account.
type Principal struct {
	// Service such as events.amazonaws.com; empty for an identity.
	Service string
	// ARN of the identity.
	ARN string
}

// Account returns the account of an identity; empty for a service.
func (p Principal) Account() string { return part(p.ARN, 4) }

// Request is evaluated by a Document.
type Request struct {
	Principal Principal
	// Action such as sqs:SendMessage.
	Action string
	// Resource is the ARN of the resource.
	Resource string
	// Context has the values of condition keys, such as aws:SourceArn. Names of keys are not
	// case-sensitive.
	Context map[string]string
}

// Decision of a Document.
type Decision int

// Decisions.
const (
	// Undecided: no statement matches.
	Undecided Decision = iota
	Allowed
	// Denied: a Deny statement matches.
	Denied
)

// Evaluate returns the decision of the document for a request.
func (d Document) Evaluate(r Request) Decision {
	decision := Undecided
	for _, s := range d.statements {
		if !s.matches(r) {
			continue
		}
		if s.deny {
			return Denied
		}
		decision = Allowed
	}
	return decision
}

// Combine returns the decision of several documents together.
func Combine(decisions ...Decision) Decision {
	if len(decisions) == 0 {
		return Undecided
	}
	return slices.Max(decisions)
}

func (s statement) matches(r Request) bool {
	return s.principals.match(r.Principal) &&
		slices.ContainsFunc(s.actions, func(p string) bool { return Like(strings.ToLower(p), strings.ToLower(r.Action)) }) &&
		slices.ContainsFunc(s.resources, func(p string) bool { return Like(p, r.Resource) }) &&
		s.conditionsMatch(r)
}

// match reports whether a principal is among those of a statement. A policy of a role has
// none: it applies to the role.
func (p principals) match(who Principal) bool {
	if p.anyone || p.aws == nil && p.services == nil {
		return true
	}
	if who.Service != "" {
		return slices.Contains(p.services, who.Service)
	}
	account := who.Account()
	return slices.ContainsFunc(p.aws, func(name string) bool {
		return name == who.ARN || account != "" && (name == account || part(name, 2) == "iam" && part(name, 4) == account && part(name, 5) == "root")
	})
}

func (s statement) conditionsMatch(r Request) bool {
	context := map[string]string{}
	for key, value := range r.Context {
		context[strings.ToLower(key)] = value
	}
	for operator, keys := range s.conditions {
		compare, known := operators[operator]
		if !known {
			if s.deny {
				continue
			}
			return false
		}
		for key, values := range keys {
			got, has := context[strings.ToLower(key)]
			if !has || !slices.ContainsFunc(values, func(want string) bool { return compare(want, got) }) {
				return false
			}
		}
	}
	return true
}

// operators of conditions, with the value of the policy first.
var operators = map[string]func(want, got string) bool{
	"StringEquals": func(want, got string) bool { return want == got },
	"StringLike":   Like,
	"ArnEquals":    arnLike,
	"ArnLike":      arnLike,
	"Bool":         strings.EqualFold,
}

// arnParts is the number of parts of an ARN; the last one may have colons.
const arnParts = 6

// arnLike compares each part of an ARN with a pattern, so that a wildcard does not match
// over a colon of the first five.
func arnLike(pattern, arn string) bool {
	want, got := strings.SplitN(pattern, ":", arnParts), strings.SplitN(arn, ":", arnParts)
	if len(want) != arnParts || len(got) != arnParts {
		return false
	}
	for i := range want {
		if !Like(want[i], got[i]) {
			return false
		}
	}
	return true
}

// part returns a part of an ARN, from 0; empty if there is none.
func part(arn string, i int) string {
	if parts := strings.SplitN(arn, ":", arnParts); i < len(parts) {
		return parts[i]
	}
	return ""
}

// Like reports whether a text matches a pattern with the wildcards * and ?.
func Like(pattern, text string) bool {
	p, t := []rune(pattern), []rune(text)
	star, from := -1, 0
	i := 0
	for j := 0; j < len(t); {
		switch {
		case i < len(p) && p[i] == '*':
			star, from = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == t[j]):
			i++
			j++
		case star >= 0:
			i = star + 1
			from++
			j = from
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}
