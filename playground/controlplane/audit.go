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
	// auditPolicy logs one line for each request when it is answered. For a watch, the line is
	// written when the answer begins.
	auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}`

	policySuffix = ".policy.json"
	ownerOnly    = 0o600
	// maxAuditLine is far above the size of a line without bodies, in bytes.
	maxAuditLine = 1 << 20
)

// audit configures the API server to write an audit log.
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

// Request is the record of one request in the audit log.
type Request struct {
	// User of the request; the impersonated one, if any.
	User string
	Verb string
	// Group, Resource, Subresource, Namespace and Name of the requested object; all empty for
	// a path of no resource.
	Group, Resource, Subresource, Namespace, Name string
	Path                                          string
	// Code of the answer; 0 if there was none.
	Code int
}

// ReadAudit reads an audit log. It skips an incomplete last line.
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
