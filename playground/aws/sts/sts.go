package sts

import (
	"cmp"
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/capstan-hub/capstan/playground/aws"
)

const (
	namespace   = "https://sts.amazonaws.com/doc/2011-06-15/"
	contentType = "text/xml"
	// Lifetime of a session: the default, minimum and maximum of STS.
	defaultSession, shortest, longest = time.Hour, 15 * time.Minute, 12 * time.Hour
)

// Role that can be assumed.
type Role struct {
	// ARN of the role: arn:aws:iam::<account>:role/<name>.
	ARN string
	// ExternalID that AssumeRole must have; any when empty.
	ExternalID string
	// Token that AssumeRoleWithWebIdentity must have; the call is denied when empty.
	Token string
	// Lasts is the lifetime of its sessions, instead of the requested one; the requested one
	// when 0.
	Lasts time.Duration
}

// Service is STS.
type Service struct {
	// mu guards roles.
	mu    sync.Mutex
	roles map[string]Role
}

var _ aws.Service = &Service{}

// New returns an STS with roles.
func New(roles ...Role) *Service {
	s := &Service{roles: map[string]Role{}}
	for _, r := range roles {
		s.Put(r)
	}
	return s
}

// Put adds a role, or replaces the one with the same ARN.
func (s *Service) Put(r Role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roles[r.ARN] = r
}

// Delete removes a role. Its sessions are valid until they expire, as with AWS.
func (s *Service) Delete(arn string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.roles, arn)
}

// Name implements aws.Service.
func (s *Service) Name() string { return "sts" }

// Anonymous implements aws.Service: the token identifies the caller.
func (s *Service) Anonymous(action string) bool { return action == "AssumeRoleWithWebIdentity" }

// Serve implements aws.Service.
func (s *Service) Serve(w http.ResponseWriter, c *aws.Call) *aws.Fault {
	switch c.Action {
	case "GetCallerIdentity":
		write(w, "GetCallerIdentity", identity{Account: aws.Account, Arn: c.Caller, UserID: "PLAYGROUND"})
		return nil
	case "AssumeRole", "AssumeRoleWithWebIdentity":
		return s.assume(w, c)
	}
	return &aws.Fault{Status: http.StatusBadRequest, Code: "InvalidAction", Message: "Could not find operation " + c.Action}
}

// roleName in an ARN, with its path.
var roleName = regexp.MustCompile(`^arn:aws[a-z-]*:iam::\d{12}:role/(.+)$`)

func (s *Service) assume(w http.ResponseWriter, c *aws.Call) *aws.Fault {
	arn, session := c.Form.Get("RoleArn"), c.Form.Get("RoleSessionName")
	name := roleName.FindStringSubmatch(arn)
	if name == nil || session == "" {
		return &aws.Fault{Status: http.StatusBadRequest, Code: "ValidationError", Message: "RoleArn or RoleSessionName is invalid"}
	}
	lasts := defaultSession
	if asked := c.Form.Get("DurationSeconds"); asked != "" {
		seconds, err := strconv.Atoi(asked)
		lasts = time.Duration(seconds) * time.Second
		if err != nil || lasts < shortest || lasts > longest {
			return &aws.Fault{Status: http.StatusBadRequest, Code: "ValidationError", Message: "DurationSeconds is out of bounds"}
		}
	}
	s.mu.Lock()
	role, known := s.roles[arn]
	s.mu.Unlock()
	if fault := trusts(role, known, c); fault != nil {
		return fault
	}
	lasts = cmp.Or(role.Lasts, lasts)
	issued := c.Server.Issue(fmt.Sprintf("arn:aws:sts::%s:assumed-role/%s/%s", aws.Account, name[1], session), lasts)
	write(w, c.Action, assumed{
		Credentials: credentials{
			AccessKeyID: issued.AccessKeyID, SecretAccessKey: issued.SecretAccessKey,
			SessionToken: issued.Token, Expiration: issued.Expires.UTC().Format(time.RFC3339),
		},
		AssumedRoleUser: user{Arn: issued.ARN, AssumedRoleID: "PLAYGROUND:" + session},
	})
	return nil
}

// trusts returns a fault if a role's trust policy denies the call.
func trusts(role Role, known bool, c *aws.Call) *aws.Fault {
	denied := &aws.Fault{
		Status: http.StatusForbidden, Code: "AccessDenied",
		Message: fmt.Sprintf("User: %s is not authorized to perform: sts:%s on resource: %s", c.Caller, c.Action, c.Form.Get("RoleArn")),
	}
	switch {
	case !known:
		return denied
	case c.Action == "AssumeRole" && role.ExternalID != "" && c.Form.Get("ExternalId") != role.ExternalID:
		return denied
	case c.Action == "AssumeRoleWithWebIdentity" && role.Token == "":
		return denied
	case c.Action == "AssumeRoleWithWebIdentity" && c.Form.Get("WebIdentityToken") != role.Token:
		return &aws.Fault{
			Status: http.StatusBadRequest, Code: "InvalidIdentityToken",
			Message: "Couldn't retrieve verification key from your identity provider",
		}
	}
	return nil
}

type (
	identity struct {
		Account, Arn string
		UserID       string `xml:"UserId"`
	}
	credentials struct {
		AccessKeyID                               string `xml:"AccessKeyId"`
		SecretAccessKey, SessionToken, Expiration string
	}
	user struct {
		Arn           string
		AssumedRoleID string `xml:"AssumedRoleId"`
	}
	assumed struct {
		Credentials     credentials
		AssumedRoleUser user
	}
)

// write writes a response of the query protocol: <XResponse><XResult>...
func write(w http.ResponseWriter, action string, result any) {
	body, err := xml.Marshal(response{
		XMLName:   xml.Name{Space: namespace, Local: action + "Response"},
		Result:    named{name: action + "Result", value: result},
		RequestID: rand.Text(),
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(body) // The caller may have closed the connection.
}

type response struct {
	XMLName   xml.Name
	Result    named
	RequestID string `xml:"ResponseMetadata>RequestId"`
}

// named is an element with a name that is set at run time.
type named struct {
	name  string
	value any
}

// MarshalXML implements xml.Marshaler.
func (n named) MarshalXML(e *xml.Encoder, _ xml.StartElement) error {
	return e.EncodeElement(n.value, xml.StartElement{Name: xml.Name{Local: n.name}})
}

// Refuse implements aws.Service. It translates the codes of EC2 to those of STS.
func (s *Service) Refuse(w http.ResponseWriter, f *aws.Fault) {
	code := f.Code
	switch code {
	case aws.AuthFailure.Code:
		code = "InvalidClientTokenId"
	case aws.Throttled.Code:
		code = "Throttling"
	case "RequestExpired":
		code = "ExpiredToken"
	}
	type fault struct{ Type, Code, Message string }
	body, err := xml.Marshal(struct {
		XMLName   xml.Name `xml:"ErrorResponse"`
		Error     fault
		RequestID string `xml:"RequestId"`
	}{XMLName: xml.Name{Space: namespace, Local: "ErrorResponse"}, Error: fault{"Sender", code, f.Message}, RequestID: rand.Text()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // As above.
}
