package truncate_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/internal/truncate"
)

func TestTruncate(t *testing.T) {
	for name, tc := range map[string]struct {
		text                 string
		limit                int
		bytes, runes, prefix string
	}{
		"empty":                      {"", 5, "", "", ""},
		"short":                      {"abc", 5, "abc", "abc", "abc"},
		"exact":                      {"abcde", 5, "abcde", "abcde", "abcde"},
		"long":                       {"abcdefgh", 5, "ab…", "abcd…", "abcde"},
		"wide":                       {"ääää", 5, "ä…", "ääää", "ää"},
		"long and wide":              {"ääääää", 5, "ä…", "ääää…", "ää"},
		"four bytes":                 {"😀😀😀", 6, "…", "😀😀😀", "😀"},
		"invalid":                    {"a\xff\xfeb", 5, "a?b", "a?b", "a?b"},
		"invalid and long":           {"a\xffbcdefgh", 5, "a?…", "a?bc…", "a?bcd"},
		"no room for the mark":       {"abcdefgh", 2, "ab", "a…", "ab"},
		"no room for a character":    {"äbcdefgh", 1, "", "…", ""},
		"no room":                    {"abc", 0, "", "", ""},
		"less than no room":          {"abc", -3, "", "", ""},
		"the mark itself is no text": {"abcdefgh", 3, "…", "ab…", "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(truncate.Bytes(tc.text, tc.limit)).To(Equal(tc.bytes))
			g.Expect(truncate.Runes(tc.text, tc.limit)).To(Equal(tc.runes))
			g.Expect(truncate.Prefix(tc.text, tc.limit)).To(Equal(tc.prefix))
		})
	}
}

func FuzzTruncate(f *testing.F) {
	f.Add("a\xffä😀\xe2\x80", 4)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit %= 1 << 12
		bytes, runes, prefix := truncate.Bytes(text, limit), truncate.Runes(text, limit), truncate.Prefix(text, limit)
		for _, got := range []string{bytes, runes, prefix} {
			if !utf8.ValidString(got) {
				t.Fatalf("%q is no UTF-8", got)
			}
		}
		most := max(limit, 0)
		if len(bytes) > most || len(prefix) > most || utf8.RuneCountInString(runes) > most {
			t.Fatalf("%q in %d is %q, %q, %q", text, limit, bytes, runes, prefix)
		}
		if whole := strings.ToValidUTF8(text, "?"); !strings.HasPrefix(whole, prefix) || !strings.HasPrefix(whole, strings.TrimSuffix(bytes, truncate.Mark)) && bytes != whole {
			t.Fatalf("%q is no beginning of %q", prefix, whole)
		}
	})
}
