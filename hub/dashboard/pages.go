package dashboard

import (
	"net/url"
	"strings"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// maxAddress is the longest address of a page, in bytes: names of two objects and a filter.
const maxAddress = 2048

// builder builds a page; false when it does not exist or the viewer may not see it.
type builder func(f *view.Facts, scope view.Scope) (view.Page, bool)

// pageKind is one of the dashboard's pages. A new one is a file in view, a template,
// and a line in pages.
type pageKind struct {
	// name is the first part of its address; parts follow it.
	name  string
	parts int
	// nav is its name in the navigation; empty when it is not in the navigation.
	nav   string
	build func(o *Options, parts []string, q view.Query) builder
}

var pages = []pageKind{
	{"", 0, "Overview", func(_ *Options, _ []string, q view.Query) builder {
		return always(func(f *view.Facts, s view.Scope) view.Page { return view.Overview(f, s, q) })
	}},
	{"clusters", 0, "Clusters", func(_ *Options, _ []string, q view.Query) builder {
		return always(func(f *view.Facts, s view.Scope) view.Page { return view.Clusters(f, s, q) })
	}},
	{"management", 0, "", func(_ *Options, _ []string, _ view.Query) builder {
		return func(f *view.Facts, s view.Scope) (view.Page, bool) { return view.ClusterDetail(f, s, view.Cluster{}) }
	}},
	{"pipelines", 0, "Pipelines", func(_ *Options, _ []string, q view.Query) builder {
		return always(func(f *view.Facts, s view.Scope) view.Page { return view.Pipelines(f, s, q) })
	}},
	{"promotions", 0, "Promotions", func(_ *Options, _ []string, q view.Query) builder {
		return always(func(f *view.Facts, s view.Scope) view.Page { return view.Promotions(f, s, q) })
	}},
	{"delivery", 0, "Delivery", func(_ *Options, _ []string, q view.Query) builder {
		return always(func(f *view.Facts, s view.Scope) view.Page { return view.DeliveryPage(f, s, q) })
	}},
	{"instances", 0, "Instances", func(_ *Options, _ []string, q view.Query) builder {
		return always(func(f *view.Facts, s view.Scope) view.Page { return view.InstanceEvents(f, s, q) })
	}},
	{"backends", 0, "Backends", func(_ *Options, _ []string, q view.Query) builder {
		return always(func(f *view.Facts, s view.Scope) view.Page { return view.Backends(f, s, q) })
	}},
	{"about", 0, "About", func(o *Options, _ []string, _ view.Query) builder {
		return always(func(f *view.Facts, s view.Scope) view.Page { return view.AboutPage(f, s, o.Version, o.Parts) })
	}},
	{"search", 0, "", func(_ *Options, _ []string, q view.Query) builder {
		q = view.Query{Search: q.Search}
		return always(func(f *view.Facts, s view.Scope) view.Page { return view.Search(f, s, q) })
	}},
	{"clusters", 3, "", func(_ *Options, parts []string, _ view.Query) builder {
		return func(f *view.Facts, s view.Scope) (view.Page, bool) {
			return view.ClusterDetail(f, s, view.Cluster{Kind: parts[0], Namespace: parts[1], Name: parts[2]})
		}
	}},
	{"pipelines", 2, "", func(_ *Options, parts []string, _ view.Query) builder {
		return func(f *view.Facts, s view.Scope) (view.Page, bool) { return view.Pipeline(f, s, parts[0], parts[1]) }
	}},
	// The pages of actions: namespace, name, action and, for some, a gate or an environment.
	{"promotions", 3, "", action("promotions")},
	{"promotions", 4, "", action("promotions")},
	{"pipelines", 3, "", action("pipelines")},
	{"pipelines", 4, "", action("pipelines")},
}

// action returns the builder of the pages of the actions on a kind of object.
func action(kind string) func(*Options, []string, view.Query) builder {
	return func(_ *Options, parts []string, _ view.Query) builder {
		return func(f *view.Facts, s view.Scope) (view.Page, bool) { return view.ActionPage(f, s, kind, parts) }
	}
}

func always(page func(*view.Facts, view.Scope) view.Page) builder {
	return func(f *view.Facts, s view.Scope) (view.Page, bool) { return page(f, s), true }
}

// address is the parsed address of a page.
type address struct {
	// canonical is equal for all addresses of the same page.
	canonical string
	route     string
	// object is set for the page of one object, which may not exist.
	object bool
	build  builder
}

// parseAddress parses the address of a page; false when no page has this address.
func (o *Options) parseAddress(u *url.URL) (address, bool) {
	if len(u.Path)+len(u.RawQuery) > maxAddress || !strings.HasPrefix(u.Path, "/") {
		return address{}, false
	}
	parts := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for i := range parts {
		part, err := url.PathUnescape(parts[i])
		if err != nil {
			return address{}, false
		}
		parts[i] = part
	}
	for _, kind := range pages {
		if parts[0] != kind.name || len(parts)-1 != kind.parts {
			continue
		}
		q := view.Query{Page: 1}
		escaped := make([]string, len(parts))
		for i, part := range parts {
			escaped[i] = url.PathEscape(part)
		}
		canonical := "/" + strings.Join(escaped, "/")
		if kind.parts == 0 { // Pages of one object have no filters.
			q = view.ParseQuery(u.Query())
			canonical = strings.TrimSuffix(canonical+"?"+q.Encode(), "?")
		}
		return address{canonical: canonical, object: kind.parts > 0, route: "/" + strings.Join(append([]string{kind.name}, kind.holders()...), "/"), build: kind.build(o, parts[1:], q)}, true
	}
	return address{}, false
}

// holders are the placeholders for the parts of an address in metrics.
func (k pageKind) holders() []string {
	all := make([]string, k.parts)
	for i := range all {
		all[i] = "*"
	}
	return all
}

// nav returns the items of the navigation.
func nav(current string) []navItem {
	var items []navItem
	for _, kind := range pages {
		if kind.nav != "" {
			at := "/" + kind.name
			items = append(items, navItem{Name: kind.nav, Path: at, Current: at == current})
		}
	}
	return items
}
