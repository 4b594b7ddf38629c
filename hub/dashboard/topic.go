package dashboard

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

const (
	// maxPatches and maxPatchBytes bound the patches that a topic keeps for viewers that
	// reconnect. A viewer that needs older patches must fetch the page.
	maxPatches    = 64
	maxPatchBytes = 1 << 20
)

// patch is an encoded change of a page.
type patch struct {
	sequence uint64
	json     []byte
}

// change is the content of a patch.
type change struct {
	// HTML of the entries that are new or changed, by ID.
	HTML map[string]string `json:"html,omitempty"`
	// Lists whose entries or order changed, with the IDs of their present entries.
	Lists map[string][]string `json:"lists,omitempty"`
}

// topic is a page for all viewers with the same Scope. It renders each entry once for all
// of them, and again only when the entry changed.
type topic struct {
	address  address
	scope    view.Scope
	renderer *renderer
	// epoch distinguishes this topic from an earlier one of the same page, for example
	// before a restart.
	epoch string

	// mu guards the fields that follow. It is held while a page is rendered, which makes no call.
	mu          sync.Mutex
	lockedFacts *view.Facts
	// lockedThere is false while the page does not exist.
	lockedThere    bool
	lockedPage     view.Page
	lockedHTML     map[string]string // by ID of the block
	lockedSequence uint64
	lockedPatches  []patch
	lockedBytes    int
	// lockedChanged is closed and replaced when the sequence rises.
	lockedChanged chan struct{}
}

func newTopic(a address, scope view.Scope, r *renderer) *topic {
	return &topic{address: a, scope: scope, renderer: r, epoch: rand.Text()[:8], lockedChanged: make(chan struct{})}
}

// shot is a page at one version.
type shot struct {
	page    view.Page
	main    string
	version string
	facts   *view.Facts
}

// refresh updates the topic with newer facts.
func (t *topic) refresh(f *view.Facts) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refreshLocked(f)
}

func (t *topic) refreshLocked(f *view.Facts) error {
	if t.lockedFacts != nil && (t.lockedFacts == f || f.Now.Before(t.lockedFacts.Now)) {
		return nil
	}
	page, there := t.address.build(f, t.scope)
	old, wasThere, first := t.lockedPage, t.lockedThere, t.lockedFacts == nil
	html, put, err := t.renderLocked(page)
	if err != nil {
		return err
	}
	another := there != wasThere || first || t.lockedFacts.Leads != f.Leads || t.lockedFacts.Leaderless != f.Leaderless || t.lockedFacts.Conflict != f.Conflict || old.Template != page.Template || !reflect.DeepEqual(old.Frame, page.Frame)
	t.lockedFacts, t.lockedPage, t.lockedThere, t.lockedHTML = f, page, there, html
	if another {
		// No patch leads from the old page to this one: viewers must fetch it.
		t.lockedPatches, t.lockedBytes = nil, 0
		t.bumpLocked()
		return nil
	}
	c := change{HTML: put, Lists: changedLists(old, page)}
	if len(c.HTML) == 0 && len(c.Lists) == 0 {
		return nil
	}
	encoded, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encoding a change: %w", err)
	}
	t.bumpLocked()
	t.keepLocked(patch{sequence: t.lockedSequence, json: encoded})
	return nil
}

// renderLocked renders the changed blocks of a page. It returns the HTML of all blocks and
// of the changed ones, by ID.
func (t *topic) renderLocked(page view.Page) (all, put map[string]string, err error) {
	before := make(map[string]view.Block, len(t.lockedPage.Blocks))
	for _, b := range t.lockedPage.Blocks {
		before[b.ID] = b
	}
	all, put = make(map[string]string, len(page.Blocks)), map[string]string{}
	for _, b := range page.Blocks {
		if old, ok := before[b.ID]; ok && old.Template == b.Template && reflect.DeepEqual(old.Data, b.Data) {
			all[b.ID] = t.lockedHTML[b.ID]
			continue
		}
		html, err := t.renderer.block(b)
		if err != nil {
			return nil, nil, err
		}
		if all[b.ID] = html; html != t.lockedHTML[b.ID] {
			put[b.ID] = html
		}
	}
	return all, put, nil
}

// changedLists returns the lists whose entries or order changed.
func changedLists(old, now view.Page) map[string][]string {
	before, after := idsByList(old), idsByList(now)
	changed := map[string][]string{}
	for list, ids := range after {
		if !slices.Equal(before[list], ids) {
			changed[list] = ids
		}
	}
	for list := range before {
		if after[list] == nil {
			changed[list] = []string{}
		}
	}
	return changed
}

func idsByList(p view.Page) map[string][]string {
	all := map[string][]string{}
	for _, b := range p.Blocks {
		all[b.List] = append(all[b.List], b.ID)
	}
	return all
}

func (t *topic) bumpLocked() {
	t.lockedSequence++
	close(t.lockedChanged)
	t.lockedChanged = make(chan struct{})
}

func (t *topic) keepLocked(p patch) {
	t.lockedPatches = append(t.lockedPatches, p)
	t.lockedBytes += len(p.json)
	for len(t.lockedPatches) > maxPatches || (t.lockedBytes > maxPatchBytes && len(t.lockedPatches) > 0) {
		t.lockedBytes -= len(t.lockedPatches[0].json)
		t.lockedPatches = slices.Delete(t.lockedPatches, 0, 1)
	}
}

// shot returns the current page; false when it does not exist.
func (t *topic) shot() (shot, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.lockedThere {
		return shot{}, false, nil
	}
	main, err := t.renderer.page(t.lockedPage, t.lockedHTML)
	return shot{page: t.lockedPage, main: main, version: t.versionLocked(t.lockedSequence), facts: t.lockedFacts}, err == nil, err
}

func (t *topic) versionLocked(sequence uint64) string {
	return t.epoch + "-" + strconv.FormatUint(sequence, 10)
}

// changesSince are the changes of a topic after a version.
type changesSince struct {
	// patches in order, and the version after each.
	patches  []patch
	versions []string
	// version of the topic now.
	version string
	// lost is set when no kept patches lead from the version to the current one.
	lost bool
	// changed is closed at the next change.
	changed <-chan struct{}
}

// since returns the changes after a version.
func (t *topic) since(version string) changesSince {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := changesSince{version: t.versionLocked(t.lockedSequence), changed: t.lockedChanged}
	epoch, text, _ := strings.Cut(version, "-")
	from, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil || epoch != t.epoch || from > t.lockedSequence || !t.lockedThere:
		n.lost = true
	case from == t.lockedSequence:
	case len(t.lockedPatches) == 0 || t.lockedPatches[0].sequence > from+1:
		n.lost = true
	default:
		for _, p := range t.lockedPatches {
			if p.sequence > from {
				n.patches = append(n.patches, p)
				n.versions = append(n.versions, t.versionLocked(p.sequence))
			}
		}
	}
	return n
}
