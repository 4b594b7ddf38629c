package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// load is what the management cluster's API server has done until now.
type load struct {
	// Writes: resource → number of requests that write it.
	Writes map[string]float64
	// Reads are GET and LIST requests.
	Reads float64
	// Bytes of the bodies of requests, after decompression; CPU seconds.
	Bytes, CPU float64
}

func callsToAPIServer() (*rest.RESTClient, error) {
	config := management.Config()
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.UnversionedRESTClientFor(config)
}

// profileOfAPIServer returns a CPU profile of some seconds.
func profileOfAPIServer(ctx context.Context, seconds int) ([]byte, error) {
	calls, err := callsToAPIServer()
	if err != nil {
		return nil, err
	}
	return calls.Get().AbsPath("/debug/pprof/profile").Param("seconds", strconv.Itoa(seconds)).DoRaw(ctx)
}

// loadNow reads it from the metrics of the API server.
func loadNow(ctx context.Context) (load, error) {
	calls, err := callsToAPIServer()
	if err != nil {
		return load{}, err
	}
	answer, err := calls.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return load{}, err
	}
	defer answer.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer)
	if err != nil {
		return load{}, err
	}
	now := load{Writes: map[string]float64{}, CPU: sum(families, "process_cpu_seconds_total", nil)}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		switch label(m, "verb") {
		case "POST", "PUT", "PATCH", "DELETE":
			now.Writes[strings.TrimSuffix(label(m, "resource")+"/"+label(m, "subresource"), "/")] += m.GetCounter().GetValue()
		case "GET", "LIST":
			now.Reads += m.GetCounter().GetValue()
		}
	}
	for _, m := range families["apiserver_request_body_size_bytes"].GetMetric() {
		now.Bytes += m.GetHistogram().GetSampleSum()
	}
	return now, nil
}

func label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// since returns and prints what the API server did since an earlier moment.
func (l load) since(before load) load {
	did := load{Writes: map[string]float64{}, Reads: l.Reads - before.Reads, Bytes: l.Bytes - before.Bytes, CPU: l.CPU - before.CPU}
	var writes []string
	total := 0.0
	for resource, n := range l.Writes {
		if n -= before.Writes[resource]; n > 0 {
			did.Writes[resource] = n
			writes = append(writes, fmt.Sprintf("%s %.0f", resource, n))
			total += n
		}
	}
	slices.Sort(writes)
	fmt.Fprintf(os.Stderr, "| the same, at the API server: writes; bytes of them; reads; CPU | %.0f (%s); %s KiB; %.0f; %s s | – | |\n",
		total, strings.Join(writes, ", "), figure(did.Bytes/kib), did.Reads, figure(did.CPU))
	return did
}
