package decode

import (
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-hub/capstan/clusters/transport"
)

// MaxObject is the largest accepted object, in bytes. An API server accepts none that is larger than
// 3 MiB.
const MaxObject = 4 << 20

// The longest parts of an identity, in bytes. Kubernetes allows names of 253 characters; its UIDs
// have 36 and its resourceVersions up to 20.
const maxName, maxUID, maxVersion = 253, 128, 64

// ErrIdentity means that a part of an object's identity, which is stored of every object, is too long.
var ErrIdentity = fmt.Errorf("an object has a name or namespace of more than %d bytes, a UID of more than %d, or a resourceVersion of more than %d", maxName, maxUID, maxVersion)

// Object decodes the fields to keep of an object. The error is transport.ErrTooLarge or
// ErrIdentity, or says that it is not valid JSON.
func Object(raw []byte, keep Fields) (*unstructured.Unstructured, error) {
	if len(raw) > MaxObject {
		return nil, transport.ErrTooLarge
	}
	object, err := decodeFields(raw, keep)
	if err != nil {
		return nil, fmt.Errorf("an object is not valid JSON: %w", err)
	}
	u := &unstructured.Unstructured{Object: object}
	if len(u.GetName()) > maxName || len(u.GetNamespace()) > maxName || len(u.GetUID()) > maxUID || len(u.GetResourceVersion()) > maxVersion {
		return u, ErrIdentity
	}
	return u, nil
}

// Body reads a body that is one object, of at most MaxObject bytes; transport.ErrTooLarge if it is
// larger.
func Body(body io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(body, MaxObject+1))
	if err == nil && len(raw) > MaxObject {
		err = transport.ErrTooLarge
	}
	return raw, err
}

// Exceeds returns whether an error means that an answer exceeds a limit of this package, or of the
// transport.
func Exceeds(err error) bool {
	return errors.Is(err, ErrIdentity) || errors.Is(err, ErrEventTooLarge) || errors.Is(err, transport.ErrTooLarge)
}
