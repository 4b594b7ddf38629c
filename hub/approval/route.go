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

// route is what a path names. Revision is of an approval only.
type route struct {
	endpoint                                   string
	namespace, pipeline, environment, revision string
}

// segments of a path, the endpoint included.
var segments = map[string]int{promotionEndpoint: 4, approvalEndpoint: 5}

// parseRoute reads a path as it was sent: each segment is escaped by itself, so that
// an environment or a revision may hold a slash. A slash at the end is let pass.
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
	// What cannot be a name is not asked for.
	ok := len(validation.IsDNS1123Label(r.namespace)) == 0 && len(validation.IsDNS1123Subdomain(r.pipeline)) == 0
	return r, ok
}

// ApprovalPath is the escaped path that approves a revision.
func ApprovalPath(namespace, pipeline, environment, revision string) string {
	return join(approvalEndpoint, namespace, pipeline, environment, revision)
}

// PromotionPath is the escaped path that tells of a revision in an environment.
func PromotionPath(namespace, pipeline, environment string) string {
	return join(promotionEndpoint, namespace, pipeline, environment)
}

func join(parts ...string) string {
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return "/" + strings.Join(parts, "/")
}
