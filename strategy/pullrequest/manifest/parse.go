package manifest

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parse returns the documents of a file.
func parse(content []byte) ([]*yaml.Node, error) {
	if !utf8.Valid(content) {
		return nil, &Error{Err: ErrUnparsable, Detail: "it is not UTF-8"}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var documents []*yaml.Node
	for {
		document := &yaml.Node{}
		switch err := decoder.Decode(document); {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, unparsable(content, err)
		}
		documents = append(documents, document)
	}
}

// parserError matches the beginning of the parser's errors.
var parserError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func unparsable(content []byte, err error) error {
	e := &Error{Err: ErrUnparsable, Detail: err.Error()}
	if match := parserError.FindStringSubmatch(e.Detail); match != nil {
		e.Line, _ = strconv.Atoi(match[1]) // 0 when it names no line
		e.Detail = e.Detail[len(match[0]):]
	}
	if bytes.Contains(content, []byte("{{")) {
		e.Detail += "; a template cannot be edited: put the marker into the values from which it is rendered"
	}
	return e
}
