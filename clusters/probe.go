package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/capstan-hub/capstan/clusters/transport"
)

const (
	// probePath answers to any identity by default, and a token that is presented is
	// checked all the same.
	probePath = "/readyz"
	// answerBytes that are read of an answer: /version and a namespace's metadata are
	// far smaller.
	answerBytes = 256 << 10
	// versionLength bounds what a cluster may write into a status.
	versionLength = 64
)

// probe asks once. The error is for people.
func (c *Connection) probe(ctx context.Context) (probeResult, error) {
	code, _, err := c.get(ctx, probePath)
	switch {
	case err != nil:
		return probeUnanswered, err
	case code >= 200 && code < 300:
		return probeGood, nil
	case code == http.StatusUnauthorized:
		return probe401, errors.New("the API server answers 401 Unauthorized")
	case code == http.StatusForbidden:
		return probe403, errors.New("the API server answers 403 Forbidden to GET " + probePath + ": give the credentials that right (ClusterRole system:public-info-viewer)")
	}
	return probeFailed, fmt.Errorf("the API server answers %d to GET %s", code, probePath)
}

// identify reads the version and the UID of kube-system, which tells clusters
// apart. Either is "" when it may not be read.
func (c *Connection) identify(ctx context.Context) (kubernetesVersion, uid string) {
	if code, answer, err := c.get(ctx, "/version"); err == nil && code == http.StatusOK {
		var info version.Info
		if json.Unmarshal(answer, &info) == nil {
			kubernetesVersion = plain(info.GitVersion)
		}
	}
	if code, answer, err := c.get(ctx, "/api/v1/namespaces/"+metav1.NamespaceSystem); err == nil && code == http.StatusOK {
		var object metav1.PartialObjectMetadata
		if json.Unmarshal(answer, &object) == nil {
			uid = plain(string(object.UID))
		}
	}
	return kubernetesVersion, uid
}

// plain cuts a word from a cluster to printable characters and a sane length.
func plain(word string) string {
	word = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, word)
	return word[:min(len(word), versionLength)]
}

// get reads a path past the gate.
func (c *Connection) get(ctx context.Context, path string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(transport.WithProbe(ctx), http.MethodGet, c.server.JoinPath(path).String(), nil)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", userAgent)
	response, err := c.client.Do(request)
	if err != nil {
		return 0, nil, readable(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerBytes))
	if err != nil {
		return 0, nil, readable(err)
	}
	return response.StatusCode, answer, nil
}

// readable leaves out what changes from attempt to attempt (ports), so that a
// message which says the same is the same.
func readable(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("the API server does not answer in time")
	}
	var operation *net.OpError
	if errors.As(err, &operation) && !errors.Is(err, transport.ErrRefused) {
		return fmt.Errorf("%s: %w", operation.Op, operation.Err)
	}
	return err
}
