package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	// auditPolicy has one line written of each request, when it is answered, or when
	// the answer of a watch begins.
	auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}`

	policySuffix = ".policy.json"
	ownerOnly    = 0o600
	// maxAuditLine is far above a line without bodies.
	maxAuditLine = 1 << 20
)

// audit has the API server write an audit log.
func audit(arguments *envtest.Arguments, path string) error {
	policy := path + policySuffix
	if err := os.WriteFile(policy, []byte(auditPolicy), ownerOnly); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	arguments.Append("audit-policy-file", policy)
	arguments.Append("audit-log-path", path)
	arguments.Append("audit-log-mode", "blocking")
	return nil
}

// Request is what the audit log says of one request.
type Request struct {
	// User who asked; the impersonated one, if any.
	User string
	Verb string
	// Group, Resource, Subresource, Namespace and Name of what was asked for; all empty
	// for a path that is no resource's.
	Group, Resource, Subresource, Namespace, Name string
	Path                                          string
	// Code of the answer; 0 when there was none.
	Code int
}

// ReadAudit reads an audit log. A line that is being written is passed over.
func ReadAudit(path string) ([]Request, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []Request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxAuditLine)
	for lines.Scan() {
		var e struct {
			Verb, RequestURI       string
			User, ImpersonatedUser struct{ Username string }
			ObjectRef              struct{ APIGroup, Resource, Subresource, Namespace, Name string }
			ResponseStatus         struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				continue
			}
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		r := Request{
			User: e.User.Username, Verb: e.Verb, Path: e.RequestURI, Code: e.ResponseStatus.Code,
			Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
			Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		}
		if e.ImpersonatedUser.Username != "" {
			r.User = e.ImpersonatedUser.Username
		}
		all = append(all, r)
	}
	return all, lines.Err()
}
