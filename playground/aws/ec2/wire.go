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

// Elements of EC2 that are not named as the others are.
var (
	oddFields = map[string]string{"GpuDeviceInfo.Workloads": "workloadSet"}
	oddItems  = map[string]string{"InferenceAcceleratorInfo.Accelerators": "member"}
)

// write an answer as EC2 does: an element for each field that is set, named as the
// field with a small first letter; a list is a run of elements "item".
func write(w http.ResponseWriter, root string, answer any) {
	var b strings.Builder
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8"?><%s xmlns="%s"><requestId>%s</requestId>`, root, namespace, rand.Text())
	fields(&b, reflect.ValueOf(answer))
	fmt.Fprintf(&b, "</%s>", root)
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write([]byte(b.String())) // A caller that has gone is not told.
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
		_ = xml.EscapeText(b, []byte(fmt.Sprint(v.Interface()))) // A Builder takes everything.
	}
	fmt.Fprintf(b, "</%s>", name)
}

// Refuse implements aws.Service.
func (s *Service) Refuse(w http.ResponseWriter, f *aws.Fault) {
	type fault struct{ Code, Message string }
	body, err := xml.Marshal(struct {
		XMLName   xml.Name `xml:"Response"`
		Fault     fault    `xml:"Errors>Error"`
		RequestID string
	}{Fault: fault{f.Code, f.Message}, RequestID: rand.Text()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // As above.
}
