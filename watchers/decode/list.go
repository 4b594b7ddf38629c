package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-hub/capstan/clusters/transport"
)

// pieces limits the parts of a list that the decoder holds at a time.
type pieces struct {
	body io.Reader
	left int
}

// maxPiece is the largest part: an object, and what the decoder reads ahead.
const maxPiece = MaxObject + 1<<20

// Read implements io.Reader.
func (p *pieces) Read(into []byte) (int, error) {
	if p.left <= 0 {
		return 0, transport.ErrTooLarge
	}
	n, err := p.body.Read(into[:min(len(into), p.left)])
	p.left -= n
	return n, err
}

// next begins another part.
func (p *pieces) next() { p.left = maxPiece }

// ErrNoList means that the answer to a list is not a list.
var ErrNoList = errors.New("the answer is not a list")

// noList makes an error of JSON an ErrNoList, and returns other errors unchanged.
func noList(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &kind) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrNoList, err)
	}
	return err
}

// List passes the items of a list to item one by one, as they are read, until item returns an error.
// The error is that, ErrNoList, ErrIdentity, or transport.ErrTooLarge, also for a page of a list.
func List(body io.Reader, item func(raw []byte) error) (metav1.ListMeta, error) {
	var about metav1.ListMeta
	p := &pieces{body: body, left: maxPiece}
	d := json.NewDecoder(p)
	each := func(raw []byte) error {
		p.next()
		return item(raw)
	}
	if err := expect(d, json.Delim('{')); err != nil {
		return about, err
	}
	isList := false
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return about, noList(err)
		}
		switch name {
		case "metadata":
			err = d.Decode(&about)
		case "items":
			isList = true
			err = decodeItems(d, each)
		default:
			err = d.Decode(&json.RawMessage{})
		}
		if err != nil {
			return about, noList(err)
		}
		p.next()
	}
	switch {
	case !isList:
		return about, ErrNoList
	case len(about.ResourceVersion) > maxVersion:
		return about, ErrIdentity
	case about.Continue != "": // No pages were requested.
		return about, transport.ErrTooLarge
	}
	return about, expect(d, json.Delim('}'))
}

// decodeItems reads an array, or null.
func decodeItems(d *json.Decoder, item func(raw []byte) error) error {
	begin, err := d.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('[') {
		return ErrNoList
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if err := item(raw); err != nil {
			return err
		}
	}
	return expect(d, json.Delim(']'))
}

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = ErrNoList
	}
	return noList(err)
}
