package ec2

import (
	"cmp"
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/capstan-hub/capstan/playground/aws"
)

const (
	namespace   = "http://ec2.amazonaws.com/doc/2016-11-15/"
	contentType = "text/xml;charset=UTF-8"
)

// Elements of EC2 with names that do not follow the rule.
var (
	oddFields = map[string]string{"GpuDeviceInfo.Workloads": "workloadSet"}
	oddItems  = map[string]string{"InferenceAcceleratorInfo.Accelerators": "member"}
)

// write writes a response as EC2 does: an element for each field that is set, with the name
// of the field and a lower-case first letter. The elements of a list are named "item".
func write(w http.ResponseWriter, root string, answer any) {
	var b strings.Builder
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8"?><%s xmlns="%s"><requestId>%s</requestId>`, root, namespace, rand.Text())
	fields(&b, reflect.ValueOf(answer))
	fmt.Fprintf(&b, "</%s>", root)
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write([]byte(b.String())) // The caller may have closed the connection.
}

func fields(b *strings.Builder, v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		key := v.Type().Name() + "." + field.Name
		name := cmp.Or(oddFields[key], strings.ToLower(field.Name[:1])+field.Name[1:])
		if v.Field(i).Kind() == reflect.Slice {
			list(b, name, cmp.Or(oddItems[key], "item"), v.Field(i))
			continue
		}
		element(b, name, v.Field(i))
	}
}

func list(b *strings.Builder, name, item string, v reflect.Value) {
	if v.Len() == 0 {
		return
	}
	fmt.Fprintf(b, "<%s>", name)
	for i := range v.Len() {
		element(b, item, v.Index(i))
	}
	fmt.Fprintf(b, "</%s>", name)
}

func element(b *strings.Builder, name string, v reflect.Value) {
	if v.IsZero() {
		return
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	fmt.Fprintf(b, "<%s>", name)
	if v.Kind() == reflect.Struct {
		fields(b, v)
	} else {
		_ = xml.EscapeText(b, []byte(fmt.Sprint(v.Interface()))) // A Builder returns no errors.
	}
	fmt.Fprintf(b, "</%s>", name)
}

// Refuse implements aws.Service.
func (s *Service) Refuse(w http.ResponseWriter, f *aws.Fault) {
	code := f.Code
	if code == aws.AccessDenied {
		code = aws.Denied.Code
	}
	type fault struct{ Code, Message string }
	body, err := xml.Marshal(struct {
		XMLName   xml.Name `xml:"Response"`
		Fault     fault    `xml:"Errors>Error"`
		RequestID string
	}{Fault: fault{code, f.Message}, RequestID: rand.Text()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // As above.
}
