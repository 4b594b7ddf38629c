package promotions

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// MaxLabel is the longest label value that Kubernetes accepts, in bytes.
	MaxLabel = 63
	// maxNamePart keeps a Promotion's name short enough to type, and to derive other names
	// from.
	maxNamePart = 40
	// hashBytes of sha256 distinguish environments and Pipelines in a name.
	hashBytes = 4
)

// Name returns the name of the Promotion with a number into an environment. Two Promotions
// of one number cannot both exist, because they would have the same name. Environment names
// have no pattern in weave's CRD, so the hash is the identity; the other parts are for
// readers.
func Name(pipeline string, uid types.UID, environment string, number int64) string {
	sum := sha256.Sum256([]byte(string(uid) + "|" + environment))
	return fmt.Sprintf("%s-%s-%s-%d", Slug(pipeline, maxNamePart), Slug(environment, maxNamePart), hex.EncodeToString(sum[:hashBytes]), number)
}

// Slug makes a DNS label from a name, cut to a length.
func Slug(name string, length int) string {
	var b strings.Builder
	dash := false
	for _, c := range strings.ToLower(name) {
		if (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') {
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(c)
		} else {
			dash = true
		}
		if b.Len() >= length {
			break
		}
	}
	s := strings.Trim(b.String()[:min(b.Len(), length)], "-")
	if s == "" {
		return "x"
	}
	return s
}
