package measure

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/internal/truncate"
)

// EndpointFlag is the flag of the program that adds an endpoint.
const EndpointFlag = "check-endpoint"

// Endpoint is a server with the HTTP API of Prometheus.
type Endpoint struct {
	// Name by which Pipelines refer to it.
	Name string
	// URL of the server; /api/v1/query is added to its path.
	URL *url.URL
	// TokenFile contains a bearer token; none if empty. CAFile contains the certificates, in PEM, of
	// the only authorities that are trusted; those of the system if empty.
	TokenFile, CAFile string
	// Namespaces whose Pipelines may use it; all if empty.
	Namespaces []string
}

// Keys of options in the value of the flag.
const (
	keyToken     = "token-file"
	keyCA        = "ca-file"
	keyNamespace = "namespace"
)

// maxQuoted bounds the text of a caller in an error, in bytes.
const maxQuoted = 64

func quoted(text string) string { return strconv.Quote(truncate.Bytes(text, maxQuoted)) }

// ParseEndpoint parses NAME=URL[,token-file=PATH][,ca-file=PATH][,namespace=NS]... An error says how
// to fix it. It does not contain the URL, which may have a password.
func ParseEndpoint(text string) (Endpoint, error) {
	parts := strings.Split(text, ",")
	name, address, ok := strings.Cut(parts[0], "=")
	if !ok {
		return Endpoint{}, errors.New("it must be NAME=URL, such as main=http://prometheus.monitoring:9090")
	}
	e := Endpoint{Name: name}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return Endpoint{}, fmt.Errorf("%s is not a name of an endpoint: %s", quoted(name), problems[0])
	}
	var err error
	if e.URL, err = parseURL(address); err != nil {
		return Endpoint{}, fmt.Errorf("endpoint %s: %w", name, err)
	}
	for _, option := range parts[1:] {
		if err := e.set(option); err != nil {
			return Endpoint{}, fmt.Errorf("endpoint %s: %w", name, err)
		}
	}
	if err := e.check(); err != nil {
		return Endpoint{}, fmt.Errorf("endpoint %s: %w", name, err)
	}
	return e, nil
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("its URL is not valid: write one such as http://prometheus.monitoring:9090")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("its URL must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("its URL names no host: write one such as http://prometheus.monitoring:9090")
	case u.User != nil:
		return nil, errors.New("its URL contains a user or a password, which is visible in the list of processes: use " + keyToken)
	case strings.ContainsAny(text, "?#"):
		return nil, errors.New("its URL must end with the path: remove the query and the fragment")
	}
	if port := u.Port(); port != "" {
		const bits = 16
		if n, err := strconv.ParseUint(port, 10, bits); err != nil || n == 0 {
			return nil, errors.New("the port of its URL must be 1 to 65535")
		}
	}
	// Whether loopback addresses are allowed is decided when the address is dialled.
	if err := (netguard.Policy{AllowLoopback: true}).CheckHost(u.Hostname()); err != nil {
		return nil, err
	}
	return u, nil
}

func (e *Endpoint) set(option string) error {
	key, value, ok := strings.Cut(option, "=")
	if !ok || value == "" {
		return fmt.Errorf("%s is not an option: use %s=PATH, %s=PATH or %s=NAME", quoted(option), keyToken, keyCA, keyNamespace)
	}
	file := func(to *string) error {
		if *to != "" {
			return fmt.Errorf("%s is given twice: name one file", key)
		}
		*to = value
		return nil
	}
	switch key {
	case keyToken:
		return file(&e.TokenFile)
	case keyCA:
		return file(&e.CAFile)
	case keyNamespace:
		if problems := validation.IsDNS1123Label(value); len(problems) > 0 {
			return fmt.Errorf("%s is not the name of a namespace: %s", quoted(value), problems[0])
		}
		if slices.Contains(e.Namespaces, value) {
			return fmt.Errorf("namespace %s is given twice: remove one", value)
		}
		e.Namespaces = append(e.Namespaces, value)
		return nil
	}
	return fmt.Errorf("%s is not a known option: use %s, %s or %s", quoted(key), keyToken, keyCA, keyNamespace)
}

// check refuses options that contradict the URL.
func (e *Endpoint) check() error {
	if e.URL.Scheme == "https" {
		return nil
	}
	if e.TokenFile != "" && !loopback(e.URL.Hostname()) {
		return fmt.Errorf("%s needs an https:// URL: over http:// the token can be read on the network", keyToken)
	}
	if e.CAFile != "" {
		return fmt.Errorf("%s needs an https:// URL: http:// has no certificates", keyCA)
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// open returns whether Pipelines of a namespace may use the endpoint.
func (e *Endpoint) open(namespace string) bool {
	return len(e.Namespaces) == 0 || slices.Contains(e.Namespaces, namespace)
}
