package wire

import (
	"net/http"
	"net/url"
	"testing"

	ce "github.com/cloudevents/sdk-go/v2/event"
	. "github.com/onsi/gomega"
)

// TestHeaders: in binary mode, characters that a header must not have are percent-encoded. The
// first value is the example of the specification.
func TestHeaders(t *testing.T) {
	g := NewWithT(t)
	to := &url.URL{Scheme: "http", Host: "receiver"}
	for value, written := range map[string]string{
		"Euro € 😀":              "Euro%20%E2%82%AC%20%F0%9F%98%80",
		`100 % "sure"`:          "100%20%25%20%22sure%22",
		"pipelines/shop/web~1!": "pipelines/shop/web~1!",
	} {
		e := ce.New()
		e.SetID("id")
		e.SetSource("/hubs/fleet")
		e.SetType("dev.capstan.promotion.started.v1")
		e.SetSubject(value)
		e.SetExtension("severity", value)
		g.Expect(e.SetData(ce.ApplicationJSON, map[string]string{"message": value})).To(Succeed())
		request, body, err := Request(t.Context(), to, e, false)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(request.Header.Get("ce-subject")).To(Equal(written))
		g.Expect(request.Header.Get("ce-severity")).To(Equal(written))
		g.Expect(request.Header.Get("Content-Type")).To(Equal(ce.ApplicationJSON))
		read, err := url.PathUnescape(request.Header.Get("ce-subject"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read).To(Equal(value))
		g.Expect(string(body)).To(ContainSubstring("message"))

		request, body, err = Request(t.Context(), to, e, true)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(request.Header).NotTo(HaveKey(http.CanonicalHeaderKey("ce-subject")))
		var got ce.Event
		g.Expect(got.UnmarshalJSON(body)).To(Succeed())
		g.Expect(got.Subject()).To(Equal(value))
	}
}
