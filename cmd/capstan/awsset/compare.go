package awsset

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// statement of a policy, in one form: lists are sorted, and actions are in lower case.
type statement struct {
	Sid, Effect                    string
	Principals, Actions, Resources []string
	// Conditions such as "ArnLike aws:SourceArn arn:…".
	Conditions []string
	// other elements, such as NotPrincipal.
	Others []string
}

// normalized returns the statements of a policy.
func normalized(policy any) ([]statement, error) {
	document, is := policy.(map[string]any)
	if !is {
		return nil, fmt.Errorf("it is no JSON object")
	}
	raw := document["Statement"]
	list, is := raw.([]any)
	if !is && raw != nil {
		list = []any{raw}
	}
	var all []statement
	for _, one := range list {
		fields, is := one.(map[string]any)
		if !is {
			return nil, fmt.Errorf("a statement is no JSON object")
		}
		var s statement
		for key, value := range fields {
			switch key {
			case "Sid":
				s.Sid = fmt.Sprint(value)
			case "Effect":
				s.Effect = fmt.Sprint(value)
			case "Action":
				s.Actions = texts(value)
				for i := range s.Actions {
					s.Actions[i] = strings.ToLower(s.Actions[i])
				}
				slices.Sort(s.Actions)
			case "Resource":
				s.Resources = texts(value)
			case "Principal":
				s.Principals = principals(value)
			case "Condition":
				s.Conditions = conditions(value)
			default:
				s.Others = append(s.Others, fmt.Sprintf("%s %v", key, value))
			}
		}
		slices.Sort(s.Others)
		all = append(all, s)
	}
	return all, nil
}

// texts returns a text or a list of them, sorted.
func texts(v any) []string {
	list, is := v.([]any)
	if !is {
		list = []any{v}
	}
	var all []string
	for _, one := range list {
		all = append(all, fmt.Sprint(one))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// principals returns those of a statement. An account id and the ARN of its root are the same.
func principals(v any) []string {
	kinds, is := v.(map[string]any)
	if !is {
		return []string{"AWS " + fmt.Sprint(v)}
	}
	var all []string
	for kind, value := range kinds {
		for _, one := range texts(value) {
			if strings.HasPrefix(one, "arn:") && strings.HasSuffix(one, ":root") {
				one = accountOf(one)
			}
			all = append(all, kind+" "+one)
		}
	}
	slices.Sort(all)
	return all
}

func conditions(v any) []string {
	var all []string
	operators, _ := v.(map[string]any)
	for operator, keys := range operators {
		keys, _ := keys.(map[string]any)
		for key, value := range keys {
			for _, one := range texts(value) {
				all = append(all, operator+" "+strings.ToLower(key)+" "+one)
			}
		}
	}
	slices.Sort(all)
	return all
}

// same reports whether two statements say the same. Their Sids may differ.
func (s statement) same(other statement) bool {
	s.Sid = other.Sid
	return reflect.DeepEqual(s, other)
}

// open reports whether a statement allows everyone, without a condition.
func (s statement) open() bool {
	everyone := slices.Contains(s.Principals, "AWS *") || slices.ContainsFunc(s.Others, func(other string) bool { return strings.HasPrefix(other, "NotPrincipal ") })
	return s.Effect == "Allow" && len(s.Conditions) == 0 && everyone
}

// differences of a policy from the expected one, as texts for users: statements that are missing or
// differ, statements that allow everyone, and further ones that deny or that judge does not accept.
// Other statements, which a user added, are no difference.
func differences(want any, text string, judge judgement) []string {
	var read any
	if text == "" {
		return []string{"there is no policy"}
	}
	if err := json.Unmarshal([]byte(text), &read); err != nil {
		return []string{"the policy is no JSON"}
	}
	expected, err := normalized(want)
	if err != nil {
		return []string{err.Error()}
	}
	actual, err := normalized(read)
	if err != nil {
		return []string{"the policy cannot be read: " + err.Error()}
	}
	var found []string
	matched := map[string]bool{}
	for _, e := range expected {
		if slices.ContainsFunc(actual, e.same) {
			continue
		}
		i := slices.IndexFunc(actual, func(a statement) bool { return a.Sid == e.Sid })
		if i < 0 {
			found = append(found, "statement "+e.Sid+" is missing")
			continue
		}
		matched[e.Sid] = true
		found = append(found, "statement "+e.Sid+" differs: "+e.against(actual[i]))
	}
	for _, a := range actual {
		known := slices.ContainsFunc(expected, a.same)
		switch {
		case known:
		case a.open():
			found = append(found, fmt.Sprintf("statement %q allows everyone", a.Sid))
		case a.Effect == "Deny" && !matched[a.Sid]:
			found = append(found, fmt.Sprintf("statement %q denies more than the template", a.Sid))
		case a.Effect == "Allow" && !matched[a.Sid]:
			if problem := judge(a); problem != "" {
				found = append(found, problem)
			}
		}
	}
	return found
}

// against describes how a statement differs from an expected one.
func (s statement) against(actual statement) string {
	var parts []string
	compare := func(what string, want, got []string) {
		if lacks := without(want, got); len(lacks) > 0 {
			parts = append(parts, what+" lacks "+strings.Join(lacks, ", "))
		}
		if more := without(got, want); len(more) > 0 {
			parts = append(parts, what+" also has "+strings.Join(more, ", "))
		}
	}
	if s.Effect != actual.Effect {
		parts = append(parts, "Effect is "+actual.Effect)
	}
	compare("Principal", s.Principals, actual.Principals)
	compare("Action", s.Actions, actual.Actions)
	compare("Resource", s.Resources, actual.Resources)
	compare("Condition", s.Conditions, actual.Conditions)
	compare("it", s.Others, actual.Others)
	return strings.Join(parts, "; ")
}

// without returns the texts of a that b does not have.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(one string) bool { return slices.Contains(b, one) })
}

// pattern compares an event pattern with the expected one.
func pattern(want any, text string) []string {
	var got any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return []string{"the event pattern is no JSON"}
	}
	return patternAt("", want, got)
}

func patternAt(path string, want, got any) []string {
	wanted, is := want.(map[string]any)
	if !is {
		var found []string
		if lacks := without(texts(want), texts(got)); len(lacks) > 0 {
			found = append(found, path+" lacks "+strings.Join(quoted(lacks), ", "))
		}
		if more := without(texts(got), texts(want)); len(more) > 0 {
			found = append(found, path+" also has "+strings.Join(quoted(more), ", "))
		}
		return found
	}
	has, _ := got.(map[string]any)
	var found []string
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if _, is := has[key]; !is {
			found = append(found, "the event pattern has no "+strings.TrimPrefix(path+"."+key, "."))
			continue
		}
		found = append(found, patternAt(strings.TrimPrefix(path+"."+key, "."), wanted[key], has[key])...)
	}
	for _, key := range slices.Sorted(maps.Keys(has)) {
		if _, is := wanted[key]; !is {
			found = append(found, "the event pattern also has "+strings.TrimPrefix(path+"."+key, "."))
		}
	}
	return found
}

func quoted(all []string) []string {
	out := make([]string, len(all))
	for i, one := range all {
		out[i] = fmt.Sprintf("%q", one)
	}
	return out
}
