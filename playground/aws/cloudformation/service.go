package cloudformation

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/internal/wire"
)

const namespace = "http://cloudformation.amazonaws.com/doc/2010-05-15/"

// defaultPage is the number of elements in a page of a response.
const defaultPage = 100

// Options of a Service.
type Options struct {
	// Pace is the time before each step of a stack's work.
	Pace time.Duration
	// PageSize is the number of changes, events or resources in a response; 100 when 0.
	PageSize int
}

// Service simulates CloudFormation.
type Service struct {
	pace time.Duration
	page int

	// mu guards stacks, and what they have.
	mu sync.Mutex
	// stacks, oldest first, with the deleted ones.
	stacks []*stack
}

var _ aws.Service = &Service{}

// New returns a CloudFormation without stacks.
func New(o Options) *Service {
	return &Service{pace: o.Pace, page: cmp.Or(o.PageSize, defaultPage)}
}

// Name implements aws.Service.
func (s *Service) Name() string { return "cloudformation" }

// Anonymous implements aws.Service.
func (s *Service) Anonymous(string) bool { return false }

const (
	stackParameter     = "StackName"
	changeSetParameter = "ChangeSetName"
	typeParameter      = "ChangeSetType"
	bodyParameter      = "TemplateBody"
	tokenParameter     = "NextToken"
	logicalParameter   = "LogicalResourceId"
	requestParameter   = "ClientRequestToken"
	modeParameter      = "DeploymentMode"
	// Prefixes of parameters that are lists.
	capabilitiesParameter = "Capabilities.member."
	tagsParameter         = "Tags.member."
)

var actions = map[string]wire.Action[*Service]{
	"CreateChangeSet":        wire.Do((*Service).createChangeSetLocked, stackParameter, changeSetParameter, typeParameter, bodyParameter, descriptionKey, requestParameter, modeParameter, capabilitiesParameter, tagsParameter),
	"DescribeChangeSet":      wire.Do((*Service).describeChangeSetLocked, stackParameter, changeSetParameter, tokenParameter),
	"ExecuteChangeSet":       wire.Do((*Service).executeChangeSetLocked, stackParameter, changeSetParameter, requestParameter),
	"DeleteChangeSet":        wire.Do((*Service).deleteChangeSetLocked, stackParameter, changeSetParameter),
	"DescribeStacks":         wire.Do((*Service).describeStacksLocked, stackParameter, tokenParameter),
	"DescribeStackEvents":    wire.Do((*Service).describeEventsLocked, stackParameter, tokenParameter),
	"DescribeStackResources": wire.Do((*Service).describeResourcesLocked, stackParameter, logicalParameter),
	"ListStackResources":     wire.Do((*Service).listResourcesLocked, stackParameter, tokenParameter),
	"GetTemplate":            wire.Do((*Service).getTemplateLocked, stackParameter, changeSetParameter, "TemplateStage"),
	"DeleteStack":            wire.Do((*Service).deleteStackLocked, stackParameter, requestParameter),
}

// Serve implements aws.Service.
func (s *Service) Serve(w http.ResponseWriter, c *aws.Call) *aws.Fault {
	return wire.Query(w, namespace, actions, s, &s.mu, c)
}

// Refuse implements aws.Service.
func (s *Service) Refuse(w http.ResponseWriter, f *aws.Fault) { wire.RefuseXML(w, namespace, f) }

// ResourceOf implements aws.Resourcer.
func (s *Service) ResourceOf(c *aws.Call) string {
	name := c.Form.Get(stackParameter)
	switch {
	case name == "":
		return "*"
	case isARN(name):
		return name
	}
	return "arn:aws:cloudformation:" + c.Region + ":" + c.Account + ":stack/" + name + "/*"
}

func isARN(name string) bool { return strings.HasPrefix(name, "arn:") }

// numbered returns the parameters with a prefix, from 1.
func numbered(form url.Values, prefix string) []string {
	var values []string
	for n := 1; form.Has(prefix + strconv.Itoa(n)); n++ {
		values = append(values, form.Get(prefix+strconv.Itoa(n)))
	}
	return values
}

// pageOf returns the page of a call, and the token of the next one.
func pageOf[T any](c *aws.Call, all []T, size int) (page []T, next string, fault *aws.Fault) {
	from := 0
	if token := c.Form.Get(tokenParameter); token != "" {
		var err error
		if from, err = strconv.Atoi(token); err != nil || from < 0 || from > len(all) {
			return nil, "", invalid("The NextToken %s is invalid", token)
		}
	}
	to := min(from+size, len(all))
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	return all[from:to], next, nil
}

func invalid(format string, args ...any) *aws.Fault {
	return wire.Bad("ValidationError", format, args...)
}

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
