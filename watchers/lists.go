package watchers

import (
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-hub/capstan/clusters/transport"
)

// decodeList hands out the items of a list one by one, as they are read.
func decodeList(body io.Reader, item func(raw []byte) error) (metav1.ListMeta, error) {
	var about metav1.ListMeta
	d := json.NewDecoder(body)
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
			err = decodeItems(d, item)
		default:
			err = d.Decode(&json.RawMessage{})
		}
		if err != nil {
			return about, noList(err)
		}
	}
	switch {
	case !isList:
		return about, errNoList
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
		return errNoList
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
		err = errNoList
	}
	return noList(err)
}
