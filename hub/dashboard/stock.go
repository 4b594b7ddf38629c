package dashboard

import (
	"reflect"

	"k8s.io/utils/lru"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// maxStock is how many rendered blocks are kept, about 1 kB each: five times the entries
// of the pages of the largest fleets.
const maxStock = 4096

// stock caches rendered blocks, so that a new topic reuses them: a page without earlier
// viewers, or one for a viewer with other permissions. Blocks that differ between
// viewers are rendered for each of them.
type stock struct {
	blocks *lru.Cache // of rendered, by stockKey; it locks itself
}

type stockKey struct{ template, id string }

type rendered struct {
	data any
	html string
}

func newStock() *stock { return &stock{lru.New(maxStock)} }

// get returns the HTML of a block; false when it is not cached.
func (s *stock) get(b view.Block) (string, bool) {
	if kept, ok := s.blocks.Get(stockKey{b.Template, b.ID}); ok {
		if r, ok := kept.(rendered); ok && reflect.DeepEqual(r.data, b.Data) {
			return r.html, true
		}
	}
	return "", false
}

func (s *stock) put(b view.Block, html string) {
	s.blocks.Add(stockKey{b.Template, b.ID}, rendered{b.Data, html})
}

func (s *stock) clear() { s.blocks.Clear() }
