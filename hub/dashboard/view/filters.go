package view

import "slices"

const (
	// maxSelect is the longest list of values that is shown completely as a menu: a longer one is searched by typing.
	maxSelect = 50
	// maxSuggested is how many values of a longer list are suggested: a thousand names would be 60 kB of each page.
	maxSuggested = 100
)

// Filters is the form above a list. The page may define its fields in any combination; the search field is always there.
type Filters struct {
	Query
	// Action is the address of the list, without parameters.
	Action string
	// What the entries are, in the plural: "clusters".
	What string
	// Namespaces that exist, and all possible States: with only the present states, each
	// new one would change the frame, and viewers would have to fetch the page.
	Namespaces, States []string
	// Environments that exist.
	Environments []string
	// Users adds a field for a part of a user's name.
	Users bool
	// Ages are the values of Query.Within: "24h".
	Ages []string
	// Sorts, Groups and Tabs are the values of Query.Sort, Query.Group and Query.Tab. The first one is the default, with an
	// empty Value.
	Sorts, Groups, Tabs []Option
}

// Option is a value of a parameter, and its text for users.
type Option struct{ Value, Text string }

// choice returns a value if it is one of the options, and else the default.
func choice(value string, of []Option) string {
	if slices.ContainsFunc(of, func(o Option) bool { return o.Value == value }) {
		return value
	}
	return ""
}

// Field is an input of the form.
type Field struct {
	// Name of the parameter.
	Name, Label, Value string
	// Options of a menu, or suggestions when Free is set; empty for a field with any text.
	Options []Option
	// Free is set for a field that is typed into.
	Free bool
}

// Link is an address with its text.
type Link struct {
	Text, Address string
	// Current is set for the address of the page itself.
	Current bool
}

// Fields returns the inputs of the form, in their order.
func (f Filters) Fields() []Field {
	fields := []Field{{Name: paramSearch, Label: "Search", Value: f.Search, Free: true}}
	add := func(name, label, value string, options []Option) {
		if len(options) > 0 {
			fields = append(fields, Field{Name: name, Label: label, Value: value, Options: options})
		}
	}
	choose := func(name, label, value string, values []string) {
		if len(values) > maxSelect {
			fields = append(fields, Field{Name: name, Label: label, Value: value, Options: options(values[:min(len(values), maxSuggested)]), Free: true})
			return
		}
		if value != "" && !slices.Contains(values, value) { // The form shows what it filters by, also if nothing has it.
			values = append(slices.Clone(values), value)
		}
		if len(values) > 0 {
			add(name, label, value, append([]Option{{"", "any"}}, options(values)...))
		}
	}
	choose(paramState, "State", f.State, f.States)
	choose(paramNamespace, "Namespace", f.Namespace, f.Namespaces)
	choose(paramEnvironment, "Environment", f.Environment, f.Environments)
	if f.Users {
		fields = append(fields, Field{Name: paramUser, Label: "User", Value: f.User, Free: true})
	}
	choose(paramWithin, "Within", f.Query.Within, f.Ages)
	add(paramGroup, "Group by", f.Group, f.Groups)
	add(paramSort, "Sort by", f.Sort, f.Sorts)
	return fields
}

func options(values []string) []Option {
	all := make([]Option, len(values))
	for i, v := range values {
		all[i] = Option{v, v}
	}
	return all
}

// Kept returns the parameters that stay when the form is sent, as inputs that are not shown. The page is not one of them.
func (f Filters) Kept() []Field {
	shown := map[string]bool{}
	for _, field := range f.Fields() {
		shown[field.Name] = true
	}
	kept := map[string]bool{}
	values := f.Query.texts()
	for name, value := range values {
		kept[name] = *value != "" && !shown[name]
	}
	var all []Field
	for _, name := range sorted(kept) {
		if kept[name] {
			all = append(all, Field{Name: name, Value: *values[name]})
		}
	}
	return all
}

// Chips returns the filters that have no field in the form, with the address without each.
func (f Filters) Chips() []Link {
	var all []Link
	for _, kept := range f.Kept() {
		if kept.Name == paramTab || kept.Name == paramSort || kept.Name == paramGroup {
			continue
		}
		without := f.Query
		without.Page = 1
		*without.texts()[kept.Name] = ""
		all = append(all, Link{Text: kept.Name + " " + kept.Value, Address: without.At(f.Action)})
	}
	return all
}

// TabLinks returns the tabs with the addresses of their lists, which keep the filters.
func (f Filters) TabLinks() []Link {
	all := make([]Link, len(f.Tabs))
	for i, tab := range f.Tabs {
		other := f.Query
		other.Tab, other.Page = tab.Value, 1
		all[i] = Link{Text: tab.Text, Address: other.At(f.Action), Current: tab.Value == f.Tab}
	}
	return all
}

// Cleared returns the address of the list without filters, in the same order.
func (f Filters) Cleared() string {
	return Query{Tab: f.Tab, Sort: f.Sort, Group: f.Group, Page: 1}.At(f.Action)
}

// Empty is shown in place of entries.
type Empty struct {
	// Columns that it spans, in a table.
	Columns int
	Text    string
	// Need is the missing permission, such as "list pipelines.pipelines.weave.works";
	// empty when no permission is missing.
	Need string
	// What the entries are, in the plural; empty for "entries".
	What string
	// Filtered is set when no entry matches the filter. Clear is the address without the filter; empty if there is none.
	Filtered bool
	Clear    string
}

// empty returns the block of a list without entries.
func empty(list, template string, columns int, seen Namespaces, need string, q Query, text string) Block {
	return Filters{Query: q}.empty(list, template, columns, seen, need, text)
}

// empty returns the block of a list without entries below the form: it says that no permission is there, that nothing
// matches the filters, or else the text.
func (f Filters) empty(list, template string, columns int, seen Namespaces, need, text string) Block {
	e := Empty{Columns: columns, Text: text, What: f.What}
	switch {
	case seen.Empty():
		e.Need = need
	case f.Filtered():
		e.Filtered = true
		if f.Action != "" {
			e.Clear = f.Cleared()
		}
	}
	return Block{ID: list + "-empty", List: list, Template: template, Data: e}
}
