package dashboard

import (
	"net/url"
	"time"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// warmEvery is how often, at most, pages without viewers are rendered. The next viewer
// finds all entries that have not changed since in the stock.
const warmEvery = 10 * time.Second

// warmer keeps the entries of the pages in the navigation in the stock, so that the first
// request of a large fleet's page is fast. Only pulse uses it.
type warmer struct {
	topics []*topic
	last   time.Time
}

func newWarmer(o *Options, r *renderer) *warmer {
	w := &warmer{}
	for _, item := range nav("") {
		if a, ok := o.parseAddress(&url.URL{Path: item.Path}); ok {
			w.topics = append(w.topics, newTopic(a, view.Everything(), r))
		}
	}
	return w
}

// due reports whether warmEvery has passed since the last rendering.
func (w *warmer) due(now time.Time) bool { return now.Sub(w.last) >= warmEvery }

// warm renders the pages of the navigation into the stock.
func (w *warmer) warm(f *view.Facts) error {
	w.last = f.Now
	for _, t := range w.topics {
		if err := t.refresh(f); err != nil {
			return err
		}
	}
	return nil
}
