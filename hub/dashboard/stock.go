package dashboard

import (
	"reflect"

	"k8s.io/utils/lru"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// maxStock of rendered blocks, of some kilobyte each: the entries of the largest
// fleets' pages, five times over.
const maxStock = 4096

// stock holds what was rendered of late, so that a page that nobody looked at before,
// or somebody with other rights, is put together and not rendered. What differs
// between viewers is rendered for each.
type stock struct {
	blocks *lru.Cache // of rendered, by stockKey; it locks itself
}

type stockKey struct{ template, id string }

type rendered struct {
	data any
	html string
}

func newStock() *stock { return &stock{lru.New(maxStock)} }

// get what a block looks like; false where it is not known.
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
