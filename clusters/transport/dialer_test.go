package transport

import (
	"bytes"
	"io"
	"net"
	"slices"
	"testing"
	"testing/iotest"

	. "github.com/onsi/gomega"
)

// received is a net.Conn with what a server has sent.
type received struct {
	net.Conn
	io.Reader
}

func (r received) Read(p []byte) (int, error) { return r.Reader.Read(p) }

func TestReadsEndAtRecords(t *testing.T) {
	g := NewWithT(t)
	record := func(length int) []byte {
		return append([]byte{23, 3, 3, byte(length >> 8), byte(length)}, bytes.Repeat([]byte{'x'}, length)...)
	}
	sent := slices.Concat(record(16<<10), record(0), record(1), record(300))
	read := func(from io.Reader) (sizes []int, all []byte) {
		c := &connection{Conn: received{Reader: from}}
		for {
			p := make([]byte, 64<<10)
			n, err := c.Read(p)
			all = append(all, p[:n]...)
			if err != nil {
				g.Expect(err).To(MatchError(io.EOF))
				return sizes, all
			}
			sizes = append(sizes, n)
		}
	}
	sizes, all := read(bytes.NewReader(sent))
	g.Expect(sizes).To(Equal([]int{5, 16 << 10, 5, 5, 1, 5, 300}))
	g.Expect(all).To(Equal(sent))
	_, all = read(iotest.OneByteReader(bytes.NewReader(sent)))
	g.Expect(all).To(Equal(sent), "a header in parts")
	_, all = read(iotest.DataErrReader(bytes.NewReader(sent)))
	g.Expect(all).To(Equal(sent), "the end with the last bytes")
	_, all = read(bytes.NewReader([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")))
	g.Expect(string(all)).To(Equal("HTTP/1.1 400 Bad Request\r\n\r\n"), "no TLS")
}
