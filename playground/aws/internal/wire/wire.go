package wire

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"encoding/xml"
	"net/http"

	"github.com/capstan-hub/capstan/playground/aws"
)

const (
	contentXML  = "text/xml"
	contentJSON = "application/x-amz-json-1.1"
)

// WriteXML writes a response of the query protocol: <XResponse><XResult>... The result may
// be nil.
func WriteXML(w http.ResponseWriter, namespace, action string, result any) {
	if result == nil {
		result = struct{}{}
	}
	encode(w, http.StatusOK, response{
		XMLName:   xml.Name{Space: namespace, Local: action + "Response"},
		Result:    named{name: action + "Result", value: result},
		RequestID: rand.Text(),
	})
}

type response struct {
	XMLName   xml.Name
	Result    named
	RequestID string `xml:"ResponseMetadata>RequestId"`
}

// named is an element with a name that is set at run time.
type named struct {
	name  string
	value any
}

// MarshalXML implements xml.Marshaler.
func (n named) MarshalXML(e *xml.Encoder, _ xml.StartElement) error {
	return e.EncodeElement(n.value, xml.StartElement{Name: xml.Name{Local: n.name}})
}

// Codes of faults of package aws, which are those of EC2, in the two protocols.
var (
	queryCodes = map[string]string{
		aws.AuthFailure.Code: "InvalidClientTokenId", aws.Throttled.Code: aws.Throttling.Code,
		aws.Denied.Code: aws.AccessDenied, aws.InternalError.Code: "InternalFailure", "RequestExpired": "ExpiredToken",
	}
	jsonCodes = map[string]string{
		aws.AuthFailure.Code: "UnrecognizedClientException", aws.Throttled.Code: "ThrottlingException", aws.Throttling.Code: "ThrottlingException",
		aws.Denied.Code: "AccessDeniedException", aws.AccessDenied: "AccessDeniedException",
		aws.InternalError.Code: "InternalException", "RequestExpired": "ExpiredTokenException",
	}
)

// RefuseXML writes a fault in the query protocol. It translates the codes of EC2.
func RefuseXML(w http.ResponseWriter, namespace string, f *aws.Fault) {
	type fault struct{ Type, Code, Message string }
	code := cmp.Or(queryCodes[f.Code], f.Code)
	encode(w, f.Status, struct {
		XMLName   xml.Name `xml:"ErrorResponse"`
		Error     fault
		RequestID string `xml:"RequestId"`
	}{XMLName: xml.Name{Space: namespace, Local: "ErrorResponse"}, Error: fault{"Sender", code, f.Message}, RequestID: rand.Text()})
}

func encode(w http.ResponseWriter, status int, v any) {
	body, err := xml.Marshal(v)
	send(w, status, contentXML, body, err)
}

// WriteJSON writes a response of the protocol JSON 1.1.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	send(w, status, contentJSON, body, err)
}

// RefuseJSON writes a fault in the protocol JSON 1.1. It translates the codes of EC2. A fault
// that the caller is not authorized has status 400 in this protocol.
func RefuseJSON(w http.ResponseWriter, f *aws.Fault) {
	code, status := cmp.Or(jsonCodes[f.Code], f.Code), f.Status
	if status < http.StatusInternalServerError {
		status = http.StatusBadRequest
	}
	WriteJSON(w, status, map[string]string{"__type": code, "message": f.Message})
}

func send(w http.ResponseWriter, status int, contentType string, body []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // The caller may have closed the connection.
}
