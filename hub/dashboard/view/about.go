package view

// AboutPath is the page about this replica.
const AboutPath = "/about"

// Part of the hub: its name, and what it does or where it is served.
type Part struct {
	Name, Is string
}

// AboutFacts describe a replica and count what the viewer may see.
type AboutFacts struct {
	Version string
	Leads   bool
	// Parts that this replica runs, and those that are disabled.
	Parts []Part

	Clusters, Pipelines, Promotions int
	// Unread are the kinds of machines that could not be read, and why.
	Unread []string
}

// AboutPage returns the page about this replica.
func AboutPage(f *Facts, scope Scope, version string, parts []Part) Page {
	a := AboutFacts{Version: version, Leads: f.Leads, Parts: parts, Unread: f.Unread}
	for i := range f.Connections {
		if scope.Clusters.Has(f.Connections[i].Namespace) {
			a.Clusters++
		}
	}
	for i := range f.Pipelines {
		if scope.Pipelines.Has(f.Pipelines[i].Namespace) {
			a.Pipelines++
		}
	}
	for i := range f.Promotions {
		if scope.Promotions.Has(f.Promotions[i].Namespace) {
			a.Promotions++
		}
	}
	return Page{Template: "about", Title: "About", Blocks: []Block{{ID: "about", List: "about", Template: "about-facts", Data: a}}}
}
