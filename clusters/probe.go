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
	"github.com/capstan-hub/capstan/internal/egress"
)

const (
	// probePath is allowed for any identity by default. The API server still checks a
	// token.
	probePath = "/readyz"
	// answerBytes is the limit for the body of a response. /version and the metadata of a
	// namespace are far smaller.
	answerBytes = 256 << 10
	// versionLength is the limit for text from a cluster in a status.
	versionLength = 64
)

// probe sends one request. The error is for users.
func (c *Connection) probe(ctx context.Context) (probeResult, error) {
	code, _, err := c.get(ctx, probePath)
	switch {
	case err != nil:
		return probeUnanswered, err
	case code >= 200 && code < 300:
		return probeGood, nil
	case code == http.StatusUnauthorized:
		return probe401, errors.New("the API server answers 401 Unauthorized")
	case code == http.StatusInternalServerError:
		return probeNotReady, fmt.Errorf("the API server answers %d to GET %s: one of its checks fails", code, probePath)
	case code == http.StatusForbidden:
		return probe403, errors.New("the API server answers 403 Forbidden to GET " + probePath + ": give the credentials that right (ClusterRole system:public-info-viewer)")
	}
	return probeFailed, fmt.Errorf("the API server answers %d to GET %s", code, probePath)
}

// identify reads the version, and the UID of kube-system, which identifies the cluster.
// Each is "" when the hub may not read it.
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

// plain reduces text from a cluster to printable characters and at most versionLength bytes.
func plain(word string) string {
	word = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, word)
	return word[:min(len(word), versionLength)]
}

// get reads a path, also while the gate is closed.
func (c *Connection) get(ctx context.Context, path string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(transport.WithProbe(ctx), http.MethodGet, c.server.JoinPath(path).String(), nil)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", userAgent)
	response, err := c.client.Do(request)
	if err != nil {
		return 0, nil, c.readable(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerBytes))
	if err != nil {
		return 0, nil, c.readable(err)
	}
	return response.StatusCode, answer, nil
}

// readable returns an error for users, which names the proxy if there is one between.
func (c *Connection) readable(err error) error {
	var between *egress.Error
	switch {
	case errors.As(err, &between):
		return between
	case c.proxy != "" && !errors.Is(err, transport.ErrRefused):
		return fmt.Errorf("through the proxy %s: %w", c.proxy, readable(err))
	}
	return readable(err)
}

// readable removes the parts of an error that differ for each attempt (ports), so that
// equal failures have equal messages.
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
