package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

const (
	// styleName is the name of the style sheet, which has the content of all files of styleDir, in the order of their names:
	// base.css and one for each page that has styles of its own.
	styleName, styleDir = "dashboard.css", "css"
)

// asset is a file whose address has a hash of its content, so that a browser may cache
// it permanently.
type asset struct {
	name, mediaType string
	content         []byte
	etag            string
}

// assetHash is how many hex digits of a file's SHA-256 are in its address.
const assetHash = 16

// loadAssets returns the assets by the names in their addresses ("dashboard.0123.css"),
// and the addresses by file names.
func loadAssets() (map[string]asset, map[string]string, error) {
	entries, err := fs.ReadDir(assetFiles, "assets")
	if err != nil {
		return nil, nil, err
	}
	types := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	byAddress, address := map[string]asset{}, map[string]string{}
	add := func(file string, content []byte) {
		sum := sha256.Sum256(content)
		hash, kind := hex.EncodeToString(sum[:])[:assetHash], path.Ext(file)
		name := strings.TrimSuffix(file, kind) + "." + hash + kind
		byAddress[name] = asset{name: name, mediaType: types[kind], content: content, etag: `"` + hash + `"`}
		address[file] = assetsPath + name
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		content, err := assetFiles.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, nil, err
		}
		add(e.Name(), content)
	}
	style, err := styles()
	if err != nil {
		return nil, nil, err
	}
	add(styleName, style)
	return byAddress, address, nil
}

// styles returns the style sheet.
func styles() ([]byte, error) {
	files, err := fs.ReadDir(assetFiles, "assets/"+styleDir)
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, f := range files {
		content, err := assetFiles.ReadFile("assets/" + styleDir + "/" + f.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, content...)
	}
	return all, nil
}

// icons have one shape for each tone, in a square of 16.
var icons = map[view.Tone]string{
	view.Bad:     "M3 4.4 4.4 3 8 6.6 11.6 3 13 4.4 9.4 8 13 11.6 11.6 13 8 9.4 4.4 13 3 11.6 6.6 8z",
	view.Stale:   "M1 7h3v2H1zM6.5 7h3v2h-3zM12 7h3v2h-3z",
	view.Warning: "M8 1 15.5 14.5H.5zM7 6v4h2V6zM7 11.5v2h2v-2z",
	view.Asking:  "M8 1 15 8 8 15 1 8z",
	view.Busy:    "M2 7h7V3l6 5-6 5V9H2z",
	view.Good:    "M6.2 13 1.5 8.3 3 6.8l3.2 3.2L13 3.2l1.5 1.5z",
	view.Idle:    "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zm0 2a4 4 0 1 1 0 8 4 4 0 0 1 0-8z",
}

// renderer renders the pages of package view as HTML.
type renderer struct {
	templates *template.Template
	stock     *stock
	// rendered counts the blocks that were not in stock.
	rendered prometheus.Counter
}

func newRenderer(addresses map[string]string, rendered prometheus.Counter) (*renderer, error) {
	t, err := template.New("").Funcs(template.FuncMap{
		"asset": func(name string) (string, error) {
			if a, ok := addresses[name]; ok {
				return a, nil
			}
			return "", fmt.Errorf("asset %q does not exist", name)
		},
		"icon":    func(t view.Tone) string { return icons[t] },
		"tones":   func() []view.Tone { return slices.Sorted(maps.Keys(icons)) },
		"columns": func(names ...string) []string { return names },
		"rfc3339": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"plural":  view.Plural,
		"utc":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	}).ParseFS(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	return &renderer{templates: t, stock: newStock(), rendered: rendered}, nil
}

// block returns the HTML of a block, from the stock when it is there.
func (r *renderer) block(b view.Block) (string, error) {
	if html, ok := r.stock.get(b); ok {
		return html, nil
	}
	html, err := r.execute(b.Template, b)
	if err == nil {
		r.rendered.Inc()
		r.stock.put(b, html)
	}
	return html, err
}

// frame is the data of a page's own template.
type frame struct {
	Frame any
	lists map[string]*strings.Builder
}

// List returns the HTML of a list's entries.
func (f frame) List(name string) template.HTML {
	if b := f.lists[name]; b != nil {
		return template.HTML(b.String()) // The templates of this package made it.
	}
	return ""
}

// page renders the main part of a page from rendered blocks, by their ID.
func (r *renderer) page(p view.Page, html map[string]string) (string, error) {
	f := frame{Frame: p.Frame, lists: map[string]*strings.Builder{}}
	for _, b := range p.Blocks {
		if f.lists[b.List] == nil {
			f.lists[b.List] = &strings.Builder{}
		}
		f.lists[b.List].WriteString(html[b.ID])
	}
	return r.execute(p.Template, f)
}

func (r *renderer) execute(name string, data any) (string, error) {
	var b bytes.Buffer
	if err := r.templates.ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("rendering %s: %w", name, err)
	}
	return b.String(), nil
}

// shell is the data of the layout around the main part of every page.
type shell struct {
	Title string
	Nav   []navItem
	// User and CSRF of a session; empty without a session.
	User, CSRF string
	// Search is the text of the search over all kinds, on its page.
	Search string
	// DryRun is set if the hub promotes nothing.
	DryRun bool
	// Standby is set on a replica that does not lead, and Connects if it still connects to the clusters.
	Standby, Connects bool
	// Leaderless is set on a standby while no replica leads; the leader was LeaderSeen then.
	Leaderless bool
	LeaderSeen time.Time
	// Hub, Conflict and OtherHubs are as in view.Facts.
	Hub, Conflict string
	OtherHubs     []view.Hub
	// Live is the address whose changes are streamed; empty for a page without changes.
	// Version is that of the shown page.
	Live, Version string
	// SignIn is set on the pages for signing in and after signing out. Next is the page to open if
	// there is a session; empty to stay.
	SignIn bool
	Next   string
	// Retry is set when the page cannot be shown now, and the browser should try again.
	Retry bool
	// Form is set if the page has fields of the form that the layout makes.
	Form bool
	Main template.HTML
	Now  time.Time
}

type navItem struct {
	Name, Path string
	Current    bool
}
