package gitrepo

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1" //nolint:gosec // Git's.
	"encoding/binary"
	"testing"

	. "github.com/onsi/gomega"
)

// Types of packed objects, gitformat-pack(5).
const (
	packedBlob     = 3
	packedRefDelta = 7
)

// packed is one object of a pack: its type, the length that its header states, and
// what is inflated from it.
type packed struct {
	kind    byte
	states  uint64
	content []byte
}

// pack of objects, as a server sends it.
func pack(objects ...packed) []byte {
	var b bytes.Buffer
	b.WriteString("PACK")
	_ = binary.Write(&b, binary.BigEndian, []uint32{2, uint32(len(objects))})
	for _, o := range objects {
		rest := o.states >> 4
		first := o.kind<<4 | byte(o.states&15)
		if rest > 0 {
			first |= 0x80
		}
		b.WriteByte(first)
		if rest > 0 {
			b.Write(binary.AppendUvarint(nil, rest))
		}
		if o.kind == packedRefDelta {
			b.Write(make([]byte, sha1.Size))
		}
		w := zlib.NewWriter(&b)
		_, _ = w.Write(o.content)
		_ = w.Close()
	}
	sum := sha1.Sum(b.Bytes()) //nolint:gosec // Git's.
	return append(b.Bytes(), sum[:]...)
}

// A pack is refused by what its headers state, before anything of it is held.
func TestWeigh(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	blob := func(n int) packed { return packed{packedBlob, uint64(n), make([]byte, n)} }
	delta := func(target uint64) packed {
		content := append(binary.AppendUvarint(binary.AppendUvarint(nil, 10), target), 'x')
		return packed{packedRefDelta, uint64(len(content)), content}
	}
	for name, tc := range map[string]struct {
		pack  []byte
		class Class
	}{
		"small":                    {pack(blob(10), blob(most), delta(most)), ""},
		"a large blob":             {pack(blob(10), blob(most+1)), TooLarge},
		"a blob that states more":  {pack(packed{packedBlob, 1 << 40, []byte("x")}), TooLarge},
		"a blob that states less":  {pack(packed{packedBlob, 1, make([]byte, most)}), Transient},
		"a delta of a large blob":  {pack(delta(most + 1)), TooLarge},
		"a delta without an end":   {pack(packed{packedRefDelta, 3, []byte{0xff, 0xff, 0xff}}), Transient},
		"many that are large":      {pack(blob(most), blob(most), blob(most), blob(most), blob(most)), TooLarge},
		"too many":                 {pack(blob(1), blob(1), blob(1), blob(1), blob(1), blob(1), blob(1), blob(1), blob(1)), TooLarge},
		"cut off":                  {pack(blob(10))[:20], Transient},
		"a length over all bounds": {append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"), bytes.Repeat([]byte{0xbf}, 20)...), Transient},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			limits := Limits{MaxObject: most, MaxInflated: 4 * most, MaxEntries: 4}
			err := limits.weigh(t.Context(), bytes.NewReader(tc.pack))
			if tc.class == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(HaveOccurred())
			g.Expect(ClassOf(err)).To(Equal(tc.class), "%v", err)
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	NewWithT(t).Expect((&Limits{MaxObject: most, MaxInflated: most, MaxEntries: 4}).weigh(ended, bytes.NewReader(pack(blob(10))))).To(MatchError(context.Canceled))
}
