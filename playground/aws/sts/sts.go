package sts

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/internal/wire"
)

const (
	namespace = "https://sts.amazonaws.com/doc/2011-06-15/"
	// Lifetime of a session: the default, minimum and maximum of STS.
	defaultSession, shortest, longest = time.Hour, 15 * time.Minute, 12 * time.Hour
)

// Role that can be assumed.
type Role struct {
	// ARN of the role: arn:aws:iam::<account>:role/<name>.
	ARN string
	// ExternalID that AssumeRole must have; any when empty.
	ExternalID string
	// TrustedCaller is the ARN of the only caller of AssumeRole that the role trusts; any caller when empty.
	TrustedCaller string
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
		wire.WriteXML(w, namespace, "GetCallerIdentity", identity{Account: c.Account, Arn: c.Caller, UserID: "PLAYGROUND"})
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
	issued := c.Server.Issue(fmt.Sprintf("arn:aws:sts::%s:assumed-role/%s/%s", aws.AccountOf(arn), name[1], session), lasts)
	wire.WriteXML(w, namespace, c.Action, assumed{
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
	case c.Action == "AssumeRole" && role.TrustedCaller != "" && role.TrustedCaller != c.Caller:
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

// Refuse implements aws.Service.
func (s *Service) Refuse(w http.ResponseWriter, f *aws.Fault) { wire.RefuseXML(w, namespace, f) }
