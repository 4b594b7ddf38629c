package dashboard

import (
	"net/url"
	"time"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

const (
	// warmEvery is how often, at most, pages without viewers are rendered. The next viewer
	// finds all entries that have not changed since in the stock.
	warmEvery = 10 * time.Second
	// warmShare is the part of the time that this may take: in a start, all entries change.
	warmShare = 50
)

// warmer keeps the entries of the pages in the navigation in the stock, so that the first
// request of a large fleet's page is fast. Only pulse uses it.
type warmer struct {
	topics []*topic
	next   time.Time
}

func newWarmer(o *Options, r *renderer) *warmer {
	w := &warmer{next: o.Clock.Now().Add(warmEvery)}
	for _, item := range nav("") {
		if a, ok := o.parseAddress(&url.URL{Path: item.Path}); ok {
			w.topics = append(w.topics, newTopic(a, view.Everything(), r))
		}
	}
	return w
}

// due reports whether the pages may be rendered again.
func (w *warmer) due(now time.Time) bool { return !now.Before(w.next) }

// warm renders the pages of the navigation into the stock.
func (w *warmer) warm(f *view.Facts, c clock.PassiveClock) error {
	began := c.Now()
	defer func() { w.next = began.Add(max(warmEvery, warmShare*c.Since(began))) }()
	for _, t := range w.topics {
		if err := t.refresh(f); err != nil {
			return err
		}
	}
	return nil
}
