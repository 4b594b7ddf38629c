package view

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxSearch is the longest search text, in characters; names are shorter.
	maxSearch = 100
	// perPage is how many promotions a page of the timeline has.
	perPage = 40
	// maxPage bounds the number of a requested page.
	maxPage = 10_000
)

// Page is the content of one address.
type Page struct {
	// Template of the frame.
	Template string
	Title    string
	// Frame is the data around the lists. When it changes, viewers must fetch the page.
	Frame any
	// Blocks in the order of their lists.
	Blocks []Block
	// Form is set if the fields of the page belong to the form with the ID "act", which has the token of
	// the session: the layout makes it, because the blocks are shared by sessions.
	Form bool
}

// Block is a part of a page that changes as a whole.
type Block struct {
	// ID on the page.
	ID string
	// List that it is an entry of.
	List string
	// Template that shows Data.
	Template string
	Data     any
}

// Query is what an address says about a page: the filter, the order and the part of a long list. All values are bounded;
// each page uses those that it has a use for, and ignores the others.
type Query struct {
	// Search is text in names, revisions or reasons.
	Search    string
	Namespace string
	// State is a word of a Mark.
	State string
	// Reason of a state, such as "SecretForbidden".
	Reason string
	// Environment is the name of an environment of Pipelines, and User a part of the name of a user.
	Environment, User string
	// Within is the age of the oldest entry, such as "24h"; empty for any.
	Within string
	// Tab of a page, Sort is the column of the order, and Group what the entries are grouped by; empty for the default.
	Tab, Sort, Group string
	// Page of a long list, from 1.
	Page int
}

// Names of the parameters.
const (
	paramSearch, paramNamespace, paramState, paramPage = "q", "namespace", "state", "page"
	paramWhy, paramEnvironment, paramUser              = "reason", "environment", "user"
	paramWithin, paramTab, paramSort, paramGroup       = "within", "tab", "sort", "group"
)

// texts are the parameters with a text, by name.
func (q *Query) texts() map[string]*string {
	return map[string]*string{
		paramSearch: &q.Search, paramNamespace: &q.Namespace, paramState: &q.State, paramWhy: &q.Reason, paramEnvironment: &q.Environment,
		paramUser: &q.User, paramWithin: &q.Within, paramTab: &q.Tab, paramSort: &q.Sort, paramGroup: &q.Group,
	}
}

// ParseQuery parses the parameters of an address; it ignores unknown ones.
func ParseQuery(v url.Values) Query {
	cut := func(s string) string {
		s = strings.ToValidUTF8(strings.TrimSpace(s), "")
		if runes := []rune(s); len(runes) > maxSearch {
			return string(runes[:maxSearch])
		}
		return s
	}
	q := Query{Page: 1}
	for name, value := range q.texts() {
		*value = cut(v.Get(name))
	}
	if n, err := strconv.Atoi(v.Get(paramPage)); err == nil && n > 1 && n <= maxPage {
		q.Page = n
	}
	return q
}

// Encode returns the shortest form that ParseQuery parses; it is equal for equal Queries.
func (q Query) Encode() string {
	v := url.Values{}
	for name, value := range q.texts() {
		if *value != "" {
			v.Set(name, *value)
		}
	}
	if q.Page > 1 {
		v.Set(paramPage, strconv.Itoa(q.Page))
	}
	return v.Encode()
}

// At returns the address of the page at a path with this Query.
func (q Query) At(path string) string { return strings.TrimSuffix(path+"?"+q.Encode(), "?") }

// Filtered reports whether a filter is set.
func (q Query) Filtered() bool {
	return q.Search != "" || q.Namespace != "" || q.State != "" || q.Reason != "" || q.Environment != "" || q.User != "" || q.Within != ""
}

// finds reports whether each word of the search text is in one of the texts, in any case.
func (q Query) finds(texts ...string) bool { return q.Search == "" || q.words().in(texts...) }

func (q Query) inNamespace(namespace string) bool {
	return q.Namespace == "" || q.Namespace == namespace
}

// among returns the Query without a State that is not one of the states of the page: an unknown state would hide all entries.
func (q Query) among(states []string) Query {
	if !slices.Contains(states, q.State) {
		q.State = ""
	}
	return q
}

func (q Query) inState(word string) bool { return q.State == "" || q.State == word }

// Count is the number of entries with a Mark, and the address of their list.
type Count struct {
	Mark Mark
	N    int
	Link string
}

// counted returns the counts of marks, worst first.
func counted(marks map[Mark]int, link func(Mark) string) []Count {
	all := make([]Count, 0, len(marks))
	for m, n := range marks {
		all = append(all, Count{Mark: m, N: n, Link: link(m)})
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(worse(a.Mark.Tone, b.Mark.Tone), cmp.Compare(a.Mark.Word, b.Mark.Word))
	})
	return all
}

// sorted returns the sorted keys of a set.
func sorted(set map[string]bool) []string {
	all := make([]string, 0, len(set))
	for k := range set {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// path returns the path of parts, each escaped.
func path(parts ...string) string {
	var b strings.Builder
	size := len(parts)
	for _, p := range parts {
		size += len(p)
	}
	b.Grow(size) // A page has tens of thousands of addresses, and few names have characters to escape.
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}
