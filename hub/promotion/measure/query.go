package measure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/capstan-hub/capstan/internal/netguard"
)

// answer is what a query found.
type answer struct {
	verdict Verdict
	value   float64
	message string
}

func failure(message string) answer { return answer{verdict: Error, message: message} }

// ask queries the endpoint. It returns within the deadline.
func (p *peer) ask(ctx context.Context, query string, deadline time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	token, err := p.token()
	if err != nil {
		return failure(err.Error())
	}
	transport, err := p.transport()
	if err != nil {
		return failure(err.Error())
	}
	c := &call{transport: transport, token: token}
	client, err := api.NewClient(api.Config{Address: p.URL.String(), RoundTripper: c})
	if err != nil {
		return failure("the URL of the endpoint is not valid")
	}
	result, _, _, err := prometheusv1.NewAPI(client).Query(ctx, query, time.Time{}, prometheusv1.WithTimeout(deadline))
	switch {
	case c.err != nil:
		return failure(reason(c.err, deadline))
	case ctx.Err() != nil:
		return failure(reason(ctx.Err(), deadline))
	case err != nil: // It may quote the answer.
		return failure("the answer of the endpoint is not a result of Prometheus: the administrator must check its URL")
	}
	return judge(result)
}

// judge returns what a result means.
func judge(result model.Value) answer {
	switch r := result.(type) {
	case *model.Scalar:
		if r == nil {
			break
		}
		return number(float64(r.Value))
	case model.Vector:
		switch {
		case len(r) == 0:
			return answer{verdict: NoData, message: "the query returns no series"}
		case len(r) > 1:
			return failure(fmt.Sprintf("the query returns %d series: aggregate them into one, such as with sum() or max()", len(r)))
		case r[0] == nil || r[0].Histogram != nil:
			return failure("the query returns a histogram: make a number of it, such as with histogram_quantile()")
		}
		return number(float64(r[0].Value))
	case model.Matrix:
		return failure("the query returns a range of values: make one value of it, such as with rate() or max_over_time()")
	}
	return failure("the answer of the endpoint is not a result of Prometheus: the administrator must check its URL")
}

func number(value float64) answer {
	switch {
	case math.IsNaN(value):
		return answer{verdict: NoData, message: "the query returns NaN"}
	case math.IsInf(value, 0):
		return answer{verdict: NoData, message: "the query returns an infinite number"}
	}
	return answer{verdict: HasValue, value: value}
}

// reason returns why a request failed. It contains no text of the server: names in certificates
// are such, too.
func reason(err error, deadline time.Duration) string {
	var (
		status      statusError
		refusal     *netguard.Error
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		timeout     net.Error
	)
	switch {
	case errors.Is(err, errTooLarge):
		return errTooLarge.Error()
	case errors.As(err, &status):
		return status.Error()
	case errors.As(err, &refusal):
		return refusal.Error()
	case errors.As(err, &certificate):
		return "the certificate of the endpoint is not valid or not trusted: the administrator must check its URL and ca-file"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("the endpoint does not answer within %s", deadline)
	case errors.As(err, &name):
		return "the host of the endpoint is not found: the administrator must check its URL"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the endpoint refuses the connection"
	}
	return "the connection to the endpoint fails"
}
