package view

import "strings"

// AboutPath is the page about this replica.
const AboutPath = "/about"

// Part of the hub: its name, and what it does or where it is served.
type Part struct {
	Name, Is string
}

// AboutFacts describe a replica and count what the viewer may see.
type AboutFacts struct {
	Version  string
	Leads    bool
	Connects bool
	// Parts that this replica runs, and those that are disabled.
	Parts []Part

	Clusters, Pipelines, Promotions int
	// Sees are all kinds of objects, with the namespaces in which the viewer sees them.
	Sees []Sight
	// Unread are the kinds of machines that could not be read, and why.
	Unread []string
}

// maxSightNames is how many namespaces a Sight lists; it counts the others.
const maxSightNames = 20

// Sight is where a viewer may see a kind of objects, or do something with it.
type Sight struct {
	// What the viewer may see or do: "Clusters", "Retry promotions".
	What string
	// All is set for all namespaces; In are the first namespaces otherwise, and More is the number of the others.
	All  bool
	In   []string
	More int
	// Need is the permission.
	Need string
}

// sights returns where the viewer may see each kind of objects, and do each action.
func (s Scope) sights() []Sight {
	parts := append(s.parts(),
		part{what: "approve and reject promotions", need: NeedApprove, in: s.Approve},
		part{what: "retry promotions", need: "patch promotions.capstan.dev", in: s.Patch},
		part{what: "override gates", need: "override and patch promotions.capstan.dev", in: s.Override},
		part{what: "suspend and resume Pipelines", need: "patch pipelines.pipelines.weave.works", in: s.Suspend},
		part{what: "promote and roll back", need: "create promotionrequests.capstan.dev", in: s.Request},
	)
	all := make([]Sight, 0, len(parts))
	for _, p := range parts {
		n := min(len(p.in.Names), maxSightNames)
		all = append(all, Sight{What: strings.ToUpper(p.what[:1]) + p.what[1:], All: p.in.All, In: p.in.Names[:n], More: len(p.in.Names) - n, Need: p.need})
	}
	return all
}

// AboutPage returns the page about this replica.
func AboutPage(f *Facts, scope Scope, version string, parts []Part) Page {
	a := AboutFacts{Version: version, Leads: f.Leads, Connects: f.Connects, Parts: parts, Unread: f.Unread, Sees: scope.sights()}
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
