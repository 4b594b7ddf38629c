package dashboard

import (
	"net/url"
	"time"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// warmEvery is how often, at most, pages are rendered that nobody looks at: whoever
// comes next finds in the stock all that has not changed since.
const warmEvery = 10 * time.Second

// warmer keeps the stock filled with the entries of the pages in the navigation, so
// that the first look at a large fleet is as quick as any. It belongs to pulse.
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

// due is whether it is time again.
func (w *warmer) due(now time.Time) bool { return now.Sub(w.last) >= warmEvery }

// warm the stock.
func (w *warmer) warm(f *view.Facts) error {
	w.last = f.Now
	for _, t := range w.topics {
		if err := t.refresh(f); err != nil {
			return err
		}
	}
	return nil
}
