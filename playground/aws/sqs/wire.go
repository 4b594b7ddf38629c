package sqs

import (
	"cmp"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/capstan-hub/capstan/playground/aws"
)

// input has the parameters of all actions.
type input struct {
	QueueURL                    string `json:"QueueUrl"`
	QueueName                   string
	QueueNamePrefix             string
	QueueOwnerAWSAccountID      string `json:"QueueOwnerAWSAccountId"`
	Attributes                  map[string]string
	AttributeNames              []string
	MessageSystemAttributeNames []string
	MessageAttributeNames       []string
	MaxNumberOfMessages         *int
	WaitTimeSeconds             *int
	Entries                     []entry
	Tags                        map[string]string
	TagKeys                     []string
	entry
}

// entry of a batch, and the parameters of the same action without a batch.
type entry struct {
	ID                string `json:"Id"`
	MessageBody       string
	DelaySeconds      *int
	MessageAttributes map[string]attribute
	ReceiptHandle     string
	VisibilityTimeout *int
}

// attribute of a message.
type attribute struct {
	DataType    string
	StringValue *string `json:",omitempty"`
	BinaryValue []byte  `json:",omitempty"`
}

type received struct {
	MessageID              string `json:"MessageId"`
	ReceiptHandle          string
	Body                   string
	MD5OfBody              string
	Attributes             map[string]string    `json:",omitempty"`
	MessageAttributes      map[string]attribute `json:",omitempty"`
	MD5OfMessageAttributes string               `json:",omitempty"`
}

type sent struct {
	ID                     string `json:"Id,omitempty"`
	MessageID              string `json:"MessageId"`
	MD5OfMessageBody       string
	MD5OfMessageAttributes string `json:",omitempty"`
}

// batch is the response to a batch: each entry is in one of the lists.
type batch struct {
	Successful []any
	Failed     []failed
}

type failed struct {
	ID          string `json:"Id"`
	SenderFault bool
	Code        string
	Message     string
}

// did is the response for an entry without other values.
type did struct {
	ID string `json:"Id"`
}

const contentType = "application/x-amz-json-1.0"

func write(w http.ResponseWriter, status int, out any) {
	body, err := json.Marshal(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // The caller may have closed the connection.
}

// legacy is the prefix of codes of SQS' older protocol, which AWS sends with the new ones.
const legacy = "AWS.SimpleQueueService."

// modern: code of the older protocol → its name in the new one, where they differ.
var modern = map[string]string{
	legacy + "NonExistentQueue": "QueueDoesNotExist",
	"QueueAlreadyExists":        "QueueNameExists",
}

// Refuse implements aws.Service. It translates faults of EC2 to those of SQS.
func (s *Service) Refuse(w http.ResponseWriter, f *aws.Fault) {
	translated := *f
	switch f.Code {
	case aws.AuthFailure.Code:
		translated = aws.Fault{Status: http.StatusForbidden, Code: "InvalidClientTokenId", Message: "The security token included in the request is invalid."}
	case aws.Throttled.Code, aws.Throttling.Code:
		translated = *Throttled
	case aws.Denied.Code:
		translated = *Denied
	case aws.InternalError.Code:
		translated = aws.Fault{Status: http.StatusInternalServerError, Code: "InternalFailure", Message: "We encountered an internal error. Please try again."}
	case "RequestExpired":
		translated = *Expired
	}
	name := cmp.Or(modern[translated.Code], strings.TrimPrefix(translated.Code, legacy))
	party := "Sender"
	if translated.Status >= http.StatusInternalServerError {
		party = "Receiver"
	}
	w.Header().Set("X-Amzn-Query-Error", translated.Code+";"+party)
	write(w, translated.Status, map[string]string{"__type": "com.amazonaws.sqs#" + name, "message": translated.Message})
}

// Faults for Faults.Refuse, in addition to those of package aws.
var (
	Throttled = &aws.Fault{Status: http.StatusForbidden, Code: "RequestThrottled", Message: "The request was denied due to request throttling."}
	Denied    = &aws.Fault{Status: http.StatusForbidden, Code: "AccessDenied", Message: "Access to the resource is denied."}
	Expired   = &aws.Fault{Status: http.StatusForbidden, Code: "ExpiredToken", Message: "The security token included in the request is expired"}
)

var (
	noSuchQueue = bad(legacy+"NonExistentQueue", "The specified queue does not exist.")
	badHandle   = bad("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
	notInFlight = bad(legacy+"MessageNotInflight", "The message referred to is not in flight.")
	overLimit   = &aws.Fault{Status: http.StatusForbidden, Code: "OverLimit", Message: "Too many messages."}
)

func bad(code, message string) *aws.Fault {
	return &aws.Fault{Status: http.StatusBadRequest, Code: code, Message: message}
}

func missing(parameter string) *aws.Fault {
	return bad("MissingParameter", "The request must contain the parameter "+parameter+".")
}

func invalid(message string) *aws.Fault { return bad("InvalidParameterValue", message) }

func sum(text string) string {
	hash := md5.Sum([]byte(text))
	return hex.EncodeToString(hash[:])
}

// sumOf returns AWS' MD5 sum of attributes: name, type and value, each with its length
// before it, sorted by name.
func sumOf(attributes map[string]attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	var text []byte
	add := func(part []byte) {
		text = binary.BigEndian.AppendUint32(text, uint32(len(part)))
		text = append(text, part...)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		add([]byte(name))
		add([]byte(a.DataType))
		if a.StringValue != nil {
			text = append(text, 1)
			add([]byte(*a.StringValue))
		} else {
			text = append(text, 2)
			add(a.BinaryValue)
		}
	}
	return sum(string(text))
}
