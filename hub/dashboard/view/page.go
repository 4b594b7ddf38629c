package view

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxSearch is far longer than a name that is looked for.
	maxSearch = 100
	// perPage promotions of the timeline.
	perPage = 50
	// maxPage bounds what a typed number can ask for.
	maxPage = 10_000
)

// Page is what one address shows.
type Page struct {
	// Template of the frame.
	Template string
	Title    string
	// Frame is what stands around the lists. When it changes, the page is another.
	Frame any
	// Blocks in the order of their lists.
	Blocks []Block
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

// Query is what an address asks for, cut to what can be meant.
type Query struct {
	// Search is looked for in names, revisions and reasons.
	Search    string
	Namespace string
	// State is a word of a Mark.
	State string
	// Page of a long list, from 1.
	Page int
}

// Names of the parameters.
const (
	paramSearch, paramNamespace, paramState, paramPage = "q", "namespace", "state", "page"
)

// ParseQuery reads an address' parameters; unknown ones are none.
func ParseQuery(v url.Values) Query {
	cut := func(s string) string {
		s = strings.ToValidUTF8(strings.TrimSpace(s), "")
		if runes := []rune(s); len(runes) > maxSearch {
			return string(runes[:maxSearch])
		}
		return s
	}
	q := Query{Search: cut(v.Get(paramSearch)), Namespace: cut(v.Get(paramNamespace)), State: cut(v.Get(paramState)), Page: 1}
	if n, err := strconv.Atoi(v.Get(paramPage)); err == nil && n > 1 && n <= maxPage {
		q.Page = n
	}
	return q
}

// Encode is the shortest form that ParseQuery reads; equal for equal Queries.
func (q Query) Encode() string {
	v := url.Values{}
	for name, value := range map[string]string{paramSearch: q.Search, paramNamespace: q.Namespace, paramState: q.State} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Page > 1 {
		v.Set(paramPage, strconv.Itoa(q.Page))
	}
	return v.Encode()
}

// Filtered is whether something is asked for.
func (q Query) Filtered() bool { return q.Search != "" || q.Namespace != "" || q.State != "" }

// finds is whether one of the texts holds what is searched for.
func (q Query) finds(texts ...string) bool {
	if q.Search == "" {
		return true
	}
	for _, t := range texts {
		if strings.Contains(strings.ToLower(t), strings.ToLower(q.Search)) {
			return true
		}
	}
	return false
}

func (q Query) inNamespace(namespace string) bool {
	return q.Namespace == "" || q.Namespace == namespace
}

func (q Query) inState(word string) bool { return q.State == "" || q.State == word }

// Filters is the form above a list.
type Filters struct {
	Query
	// Action is the address of the list.
	Action string
	// Namespaces that there are, and States that there can be: those of the moment would
	// make another page of each new one.
	Namespaces, States []string
}

// Empty is shown in place of entries.
type Empty struct {
	// Columns that it spans, in a table.
	Columns int
	Text    string
	// Need is the right that is missing, such as "list pipelines.pipelines.weave.works";
	// empty when it is not for a right.
	Need string
	// Filtered is whether a filter leaves nothing.
	Filtered bool
}

// empty is the block of a list without entries.
func empty(list, template string, columns int, seen Namespaces, need string, q Query, text string) Block {
	e := Empty{Columns: columns, Text: text}
	switch {
	case seen.Empty():
		e.Need = need
	case q.Filtered():
		e.Filtered = true
	}
	return Block{ID: list + "-empty", List: list, Template: template, Data: e}
}

// Count is a number with what it is of, and where to find them.
type Count struct {
	Mark Mark
	N    int
	Link string
}

// counted are the counts of marks, worst first.
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

// sorted are the keys of a set.
func sorted(set map[string]bool) []string {
	all := make([]string, 0, len(set))
	for k := range set {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// path of parts, each escaped.
func path(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}
