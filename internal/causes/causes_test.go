package causes_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/internal/causes"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func TestOf(t *testing.T) {
	g := NewWithT(t)
	items := []causes.Item{
		{Key: "late", Severity: 2, Name: "z", Since: noon.Add(-time.Hour)},
		{Key: "down", Severity: 0, Name: "b", Since: noon},
		{Key: "unknown", Severity: 0, Name: "u"},
		{Key: "denied", Severity: 1, Name: "d", Since: noon.Add(-time.Minute)},
		{Key: "denied", Severity: 0, Name: "c", Since: noon.Add(time.Minute)},
		{Key: "denied", Severity: 0, Name: "a"},
		{Key: "slow", Severity: 2, Name: "y", Since: noon.Add(-time.Hour)},
		{Key: "slow", Severity: 2, Name: "x", Since: noon.Add(-time.Hour)},
	}
	g.Expect(causes.Of(items, 2)).To(Equal([]causes.Group{
		{Key: "denied", Severity: 0, Count: 3, Oldest: noon.Add(-time.Minute), Names: []string{"a", "c"}, Example: 4},
		{Key: "down", Severity: 0, Count: 1, Oldest: noon, Names: []string{"b"}, Example: 1},
		{Key: "unknown", Severity: 0, Count: 1, Names: []string{"u"}, Example: 2},
		{Key: "slow", Severity: 2, Count: 2, Oldest: noon.Add(-time.Hour), Names: []string{"x", "y"}, Example: 7},
		{Key: "late", Severity: 2, Count: 1, Oldest: noon.Add(-time.Hour), Names: []string{"z"}, Example: 0},
	}))
	g.Expect(causes.Of(nil, 2)).To(BeEmpty())
	g.Expect(causes.Of(items[:1], 0)[0].Names).To(BeEmpty())
}

// The order of the items does not matter, and no item is lost.
func TestOfAnyOrder(t *testing.T) {
	g := NewWithT(t)
	var items []causes.Item
	for i := range 500 {
		items = append(items, causes.Item{Key: fmt.Sprint(i % 7), Severity: i % 3, Name: fmt.Sprintf("c%03d", i), Since: noon.Add(time.Duration(i%11) * time.Second)})
	}
	want := causes.Of(items, 3)
	total := 0
	for i := range want {
		total += want[i].Count
		want[i].Names = append([]string{items[want[i].Example].Name}, want[i].Names...)
	}
	g.Expect(total).To(Equal(len(items)))
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		random.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		got := causes.Of(items, 3)
		for i := range got {
			got[i].Names = append([]string{items[got[i].Example].Name}, got[i].Names...)
			got[i].Example = want[i].Example
		}
		g.Expect(got).To(Equal(want))
	}
}

func TestExamples(t *testing.T) {
	g := NewWithT(t)
	of := func(n, names int) causes.Group {
		var items []causes.Item
		for i := range n {
			items = append(items, causes.Item{Name: fmt.Sprintf("fleet/c%02d", i)})
		}
		slices.Reverse(items)
		return causes.Of(items, names)[0]
	}
	g.Expect(of(60, 3).Examples(20)).To(Equal("fleet/c00, fleet/c01, fleet/c02 and 57 more"))
	g.Expect(of(2, 3).Examples(20)).To(Equal("fleet/c00, fleet/c01"))
	g.Expect(of(4, 0).Examples(20)).To(Equal("4 objects"))
	long := causes.Of([]causes.Item{{Name: strings.Repeat("é", 253)}}, 1)[0]
	g.Expect(long.Examples(5)).To(Equal("éééé…"))
}

func TestShape(t *testing.T) {
	for _, c := range []struct{ message, want string }{
		{`Secret fleet/eu-kubeconfig: the hub may not read it`, `Secret # the hub may not read it`},
		{`Get "https://eu.example/version": dial tcp 10.1.2.3:6443: i/o timeout`, `Get # dial tcp # i/o timeout`},
		{"  12 of\n13 ready ", "# of # ready"},
		{"europe is not eu", "europe is not #"},
		{"", ""},
	} {
		NewWithT(t).Expect(causes.Shape(c.message, "eu", "")).To(Equal(c.want), c.message)
	}
}

func FuzzShape(f *testing.F) {
	f.Add("Secret fleet/eu: x", "eu")
	f.Add("\xff eu\xffeu", "\xff")
	f.Fuzz(func(t *testing.T, message, own string) {
		once := causes.Shape(message, own)
		if twice := causes.Shape(once, own); own != "#" && twice != once {
			t.Fatalf("%q becomes %q, then %q", message, once, twice)
		}
	})
}
