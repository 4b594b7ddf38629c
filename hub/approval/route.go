package approval

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Endpoints, as the first segment of a path.
const (
	promotionEndpoint = "promotion"
	approvalEndpoint  = "approval"
)

// route has the names in a path. Only an approval has a revision.
type route struct {
	endpoint                                   string
	namespace, pipeline, environment, revision string
}

// segments is the number of segments in a path, including the endpoint.
var segments = map[string]int{promotionEndpoint: 4, approvalEndpoint: 5}

// parseRoute parses an escaped path. Each segment is escaped separately, so that an environment
// or a revision may contain a slash. A slash at the end is accepted.
func parseRoute(escapedPath string) (route, bool) {
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(escapedPath, "/"), "/"), "/")
	if !strings.HasPrefix(escapedPath, "/") || segments[parts[0]] == 0 || segments[parts[0]] != len(parts) {
		return route{}, false
	}
	for i := range parts {
		plain, err := url.PathUnescape(parts[i])
		if err != nil || plain == "" || !utf8.ValidString(plain) {
			return route{}, false
		}
		parts[i] = plain
	}
	r := route{endpoint: parts[0], namespace: parts[1], pipeline: parts[2], environment: parts[3]}
	if r.endpoint == approvalEndpoint {
		r.revision = parts[4]
	}
	// The API server is not called for names that cannot exist.
	ok := len(validation.IsDNS1123Label(r.namespace)) == 0 && len(validation.IsDNS1123Subdomain(r.pipeline)) == 0
	return r, ok
}

// ApprovalPath returns the escaped path of an approval of a revision.
func ApprovalPath(namespace, pipeline, environment, revision string) string {
	return join(approvalEndpoint, namespace, pipeline, environment, revision)
}

// PromotionPath returns the escaped path of a hint that an environment has a new revision.
func PromotionPath(namespace, pipeline, environment string) string {
	return join(promotionEndpoint, namespace, pipeline, environment)
}

func join(parts ...string) string {
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return "/" + strings.Join(parts, "/")
}
