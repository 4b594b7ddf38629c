package provider

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// maxProbe bounds the read part of a response to a probe, in bytes. Versions and headers
// are small.
const maxProbe = 64 << 10

// typeOfHost returns the type of the service at a public host; empty for other hosts.
func typeOfHost(host string) pipelinesv1.GitProviderType {
	host = strings.ToLower(host)
	switch host {
	case "github.com", "www.github.com":
		return pipelinesv1.GitHub
	case "gitlab.com":
		return pipelinesv1.GitLab
	case "gitea.com", "codeberg.org":
		return pipelinesv1.Gitea
	case "dev.azure.com":
		return pipelinesv1.AzureDevOps
	}
	switch {
	case strings.HasSuffix(host, ".ghe.com"):
		return pipelinesv1.GitHub
	case strings.HasSuffix(host, ".visualstudio.com"):
		return pipelinesv1.AzureDevOps
	}
	return ""
}

// checkHost returns an error if the host of a URL belongs to a service of another type.
func checkHost(t pipelinesv1.GitProviderType, host string) error {
	if strings.EqualFold(host, "bitbucket.org") {
		return invalid(t, "the URL is that of Bitbucket Cloud, which is not supported; bitbucket-server is Bitbucket Server and Data Center")
	}
	if is := typeOfHost(host); is != "" && is != t {
		return invalid(t, "%s is a service of type %s: set type to %s", host, is, is)
	}
	return nil
}

// probe of a type of service: a GET request without credentials, and what shows in its
// response that the service is of the type.
type probe struct {
	kind pipelinesv1.GitProviderType
	path string
	is   func(status int, h http.Header, body map[string]any) bool
}

var probes = []probe{
	// https://docs.gitea.com/api/#tag/miscellaneous/operation/getVersion
	{pipelinesv1.Gitea, "/api/v1/version", func(status int, _ http.Header, body map[string]any) bool {
		_, version := body["version"].(string)
		return status == http.StatusOK && version
	}},
	// https://docs.gitlab.com/api/version/: 401 without a token.
	{pipelinesv1.GitLab, "/api/v4/version", func(status int, h http.Header, body map[string]any) bool {
		return h.Get("X-Gitlab-Meta") != "" || status == http.StatusUnauthorized && body["message"] == "401 Unauthorized"
	}},
	// https://docs.github.com/en/enterprise-server/rest/meta/meta
	{pipelinesv1.GitHub, "/api/v3/meta", func(status int, h http.Header, body map[string]any) bool {
		_, version := body["installed_version"].(string)
		return h.Get("X-GitHub-Request-Id") != "" || status == http.StatusOK && version
	}},
	// https://developer.atlassian.com/server/bitbucket/rest/ (System Maintenance)
	{pipelinesv1.BitbucketServer, "/rest/api/1.0/application-properties", func(status int, _ http.Header, body map[string]any) bool {
		name, _ := body["displayName"].(string)
		return status == http.StatusOK && strings.Contains(name, "Bitbucket")
	}},
	// Azure DevOps Server adds these headers to every response.
	{pipelinesv1.AzureDevOps, "/_apis", func(_ int, h http.Header, _ map[string]any) bool {
		return h.Get("X-TFS-ProcessId") != "" || h.Get("X-VSS-E2EID") != ""
	}},
}

// misfit returns an error of class Invalid if a response that is not of this type's API
// comes from a service of another type, and otherwise the given error. Without it, the
// promotion would be retried although only an edit of the Pipeline can fix it.
func (p *guarded) misfit(ctx context.Context, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Class != NotFound && !e.foreign {
		return err
	}
	var other pipelinesv1.GitProviderType
	for _, candidate := range probes {
		if !p.probe(ctx, candidate) {
			continue
		}
		if candidate.kind == p.kind {
			return err
		}
		other = candidate.kind
	}
	if other == "" {
		return err
	}
	mismatch := invalid(p.kind, "type is %s, but %s is a service of type %s: set type to %s", p.kind, p.wire.host, other, other)
	mismatch.Op = e.Op
	return mismatch
}

// probe reports whether the service is of a type. A failed request shows nothing.
func (p *guarded) probe(ctx context.Context, of probe) bool {
	ctx, cancel := context.WithTimeout(ctx, p.wire.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.repository.Server+of.path, http.NoBody)
	if err != nil {
		return false
	}
	request.Header.Set("User-Agent", p.wire.userAgent)
	request.Header.Set("Accept", "application/json")
	// Not through the wire, which adds the credentials.
	response, err := p.wire.base.RoundTrip(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var body map[string]any
	// A body that is not JSON leaves the headers.
	_ = json.NewDecoder(io.LimitReader(response.Body, maxProbe)).Decode(&body)
	return of.is(response.StatusCode, response.Header, body)
}
