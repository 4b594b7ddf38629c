package ec2

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/capstan-hub/capstan/playground/aws"
)

// Sizes of a page that EC2 takes, and the one it has when it is not told.
const (
	leastPage, mostPage = 5, 100
	// mostNames in one request.
	mostNames = 100
)

// Service is EC2.
type Service struct {
	// mu guards regions.
	mu      sync.Mutex
	regions map[string]region
}

var _ aws.Service = &Service{}

type region struct {
	types []types.InstanceTypeInfo
	// disabled by the account.
	disabled bool
}

// New EC2 with regions that each offer Fixtures.
func New(regions ...string) *Service {
	s := &Service{regions: map[string]region{}}
	for _, name := range regions {
		s.Offer(name, Fixtures()...)
	}
	return s
}

// Offer has a region offer exactly these types from now on.
func (s *Service) Offer(name string, infos ...types.InstanceTypeInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.regions[name] = region{types: infos, disabled: s.regions[name].disabled}
}

// Enable or disable a region for the account.
func (s *Service) Enable(name string, enabled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.regions[name] = region{types: s.regions[name].types, disabled: !enabled}
}

// Name implements aws.Service.
func (s *Service) Name() string { return "ec2" }

// Anonymous implements aws.Service.
func (s *Service) Anonymous(string) bool { return false }

// Serve implements aws.Service.
func (s *Service) Serve(w http.ResponseWriter, c *aws.Call) *aws.Fault {
	s.mu.Lock()
	r, exists := s.regions[c.Region]
	s.mu.Unlock()
	switch {
	case !exists:
		return &aws.Fault{
			Status: http.StatusUnauthorized, Code: aws.AuthFailure.Code,
			Message: fmt.Sprintf("Credential should be scoped to a valid region, not '%s'.", c.Region),
		}
	case r.disabled:
		return &aws.AuthFailure
	case c.Action != "DescribeInstanceTypes":
		return fault("InvalidAction", "The action %s is not valid for this web service.", c.Action)
	}
	return describe(w, c.Form, r.types)
}

// describe answers DescribeInstanceTypes.
func describe(w http.ResponseWriter, form url.Values, offered []types.InstanceTypeInfo) *aws.Fault {
	names := numbered(form, "InstanceType.")
	size, sized := form.Get("MaxResults"), form.Has("MaxResults")
	if len(names) > 0 && sized {
		return fault("InvalidParameterCombination", "The parameter InstanceTypes cannot be used with the parameter MaxResults")
	}
	if len(names) > mostNames {
		return fault("InvalidParameterValue", "More than %d instance types", mostNames)
	}
	matching, f := named(offered, names)
	if f == nil {
		matching, f = filtered(matching, form)
	}
	if f != nil {
		return f
	}

	page := mostPage
	if sized {
		n, err := strconv.Atoi(size)
		if err != nil || n < leastPage || n > mostPage {
			return fault("InvalidParameterValue", "Value ( %s ) for parameter maxResults is invalid. Expecting a value between %d and %d.",
				size, leastPage, mostPage)
		}
		page = n
	}
	from, err := position(form.Get("NextToken"))
	if err != nil || from > len(matching) {
		return fault("InvalidNextToken", "The token is invalid.")
	}
	to := min(from+page, len(matching))
	answer := response{InstanceTypeSet: matching[from:to]}
	if to < len(matching) {
		answer.NextToken = token(to)
	}
	write(w, "DescribeInstanceTypesResponse", answer)
	return nil
}

// response of DescribeInstanceTypes.
type response struct {
	InstanceTypeSet []types.InstanceTypeInfo
	NextToken       string
}

// named are those offered that were asked for by name, all where none was. A name that
// is not offered fails the call, and is told of.
func named(offered []types.InstanceTypeInfo, names []string) ([]types.InstanceTypeInfo, *aws.Fault) {
	if len(names) == 0 {
		return offered, nil
	}
	var found []types.InstanceTypeInfo
	var missing []string
	for _, name := range names {
		at := slices.IndexFunc(offered, func(t types.InstanceTypeInfo) bool { return string(t.InstanceType) == name })
		if at < 0 {
			missing = append(missing, name)
			continue
		}
		found = append(found, offered[at])
	}
	if missing != nil {
		return nil, fault("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", strings.Join(missing, ", "))
	}
	return found, nil
}

// filtered are those of offered that a filter leaves. Its values may have wildcards.
func filtered(offered []types.InstanceTypeInfo, form url.Values) ([]types.InstanceTypeInfo, *aws.Fault) {
	for n := 1; form.Has(fmt.Sprintf("Filter.%d.Name", n)); n++ {
		name := form.Get(fmt.Sprintf("Filter.%d.Name", n))
		if name != "instance-type" {
			return nil, fault("InvalidParameterValue", "The filter '%s' is invalid", name)
		}
		patterns := numbered(form, fmt.Sprintf("Filter.%d.Value.", n))
		var left []types.InstanceTypeInfo
		for _, t := range offered {
			if slices.ContainsFunc(patterns, func(p string) bool {
				matched, err := path.Match(p, string(t.InstanceType))
				return err == nil && matched
			}) {
				left = append(left, t)
			}
		}
		offered = left
	}
	return offered, nil
}

// numbered parameters, from 1.
func numbered(form url.Values, prefix string) []string {
	var values []string
	for n := 1; form.Has(prefix + strconv.Itoa(n)); n++ {
		values = append(values, form.Get(prefix+strconv.Itoa(n)))
	}
	return values
}

// token for the page that begins at a position, opaque to the caller.
func token(at int) string {
	return base64.StdEncoding.EncodeToString([]byte("page:" + strconv.Itoa(at)))
}

func position(token string) (int, error) {
	if token == "" {
		return 0, nil
	}
	text, err := base64.StdEncoding.DecodeString(token)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimPrefix(string(text), "page:"))
}

func fault(code, format string, args ...any) *aws.Fault {
	return &aws.Fault{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}
