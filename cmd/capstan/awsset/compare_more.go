package awsset

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
)

// judgement of an Allow statement that the template does not have: what is wrong with it, for users;
// empty if it is accepted.
type judgement func(s statement) string

// noTrust accepts no further statement: a role of the template has no other purpose.
func noTrust(s statement) string {
	return fmt.Sprintf("statement %q also allows %s to assume the role", s.Sid, s.who())
}

// notAll accepts further permissions, but not those for all actions or on all resources.
func notAll(s statement) string {
	for _, action := range s.Actions {
		if action == "*" || strings.HasSuffix(action, ":*") {
			return fmt.Sprintf("statement %q allows the actions %s", s.Sid, action)
		}
	}
	switch {
	case slices.Contains(s.Resources, "*"):
		return fmt.Sprintf("statement %q allows all resources", s.Sid)
	case len(s.Others) > 0:
		return fmt.Sprintf("statement %q allows all but %s", s.Sid, strings.Join(s.Others, ", "))
	}
	return ""
}

// ownSenders accepts further statements of a queue's policy for the target's own account, its
// members and its organization.
func (t *Target) ownSenders(s statement) string {
	accounts := append([]string{t.Account}, t.options.Template.Members...)
	if s.bounded(accounts, t.options.Template.Organization) {
		return ""
	}
	var others []string
	for _, principal := range s.Principals {
		if name, is := strings.CutPrefix(principal, "AWS "); !is || !slices.Contains(accounts, accountOf(name)) {
			others = append(others, principal)
		}
	}
	if len(others) == 0 && len(s.Others) == 0 {
		return ""
	}
	return fmt.Sprintf("statement %q also allows %s, which neither this account nor --members or --organization includes", s.Sid, strings.Join(append(others, s.Others...), ", "))
}

// who names those that a statement is for.
func (s statement) who() string {
	return strings.Join(append(slices.Clone(s.Principals), s.Others...), ", ")
}

// accountOf returns the account of an ARN, or of the id itself.
func accountOf(name string) string {
	if parsed, err := arn.Parse(name); err == nil {
		return parsed.AccountID
	}
	return name
}

// bounded reports whether a condition limits a statement to accounts or to an organization. All
// values of one operator and key must do so, because any of them suffices.
func (s statement) bounded(accounts []string, organization string) bool {
	limits := map[string]bool{}
	for _, c := range s.Conditions {
		operator, rest, _ := strings.Cut(c, " ")
		key, value, _ := strings.Cut(rest, " ")
		if !slices.Contains([]string{"StringEquals", "StringLike", "ArnEquals", "ArnLike"}, operator) {
			continue
		}
		within := false
		switch key {
		case "aws:sourceaccount", "aws:principalaccount":
			within = slices.Contains(accounts, value)
		case "aws:sourcearn", "aws:principalarn":
			within = slices.Contains(accounts, accountOf(value))
		case "aws:principalorgid":
			within = organization != "" && value == organization
		}
		of := operator + " " + key
		if before, is := limits[of]; is {
			within = within && before
		}
		limits[of] = within
	}
	for _, within := range limits {
		if within {
			return true
		}
	}
	return false
}
