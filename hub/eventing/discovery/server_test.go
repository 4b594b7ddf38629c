package discovery

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/ports"
)

// TestServer: the server serves on its own port, and stops.
func TestServer(t *testing.T) {
	leaks.AtEnd(t)
	g := NewWithT(t)
	address, err := ports.Free()
	g.Expect(err).NotTo(HaveOccurred())
	taken, err := net.Listen("tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	s := &Server{BindAddress: address, Registry: registry, Logger: logr.Discard()}
	g.Expect(s.Start(t.Context())).To(MatchError(ContainSubstring("address already in use")))
	g.Expect(taken.Close()).To(Succeed())

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	types := func() []string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.BindAddress+BackendPath, nil)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil
		}
		defer response.Body.Close()
		var types []string
		g.Expect(json.NewDecoder(response.Body).Decode(&types)).To(Succeed())
		return types
	}
	g.Eventually(types).WithTimeout(10 * time.Second).Should(Equal([]string{"nats", "beb", "sqs", "http", "flux", "slack", "msteams", "commitstatus"}))
	cancel()
	g.Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
	http.DefaultClient.CloseIdleConnections()
}
