package view

// AboutPath is the page about this replica.
const AboutPath = "/about"

// AboutFacts are what a replica knows of itself, and how much the viewer may see.
type AboutFacts struct {
	Version                         string
	Leads                           bool
	Clusters, Pipelines, Promotions int
	// Unread are the kinds of machines that it could not read, and why.
	Unread []string
}

// AboutPage is the page about this replica.
func AboutPage(f *Facts, scope Scope, version string) Page {
	a := AboutFacts{Version: version, Leads: f.Leads, Unread: f.Unread}
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
