package wire

import (
	"net/http"
	"strings"
)

// attributeHeader begins the headers of attributes in binary mode, as net/http writes it.
const attributeHeader = "Ce-"

// escapeHeaders escapes the attributes of a binary event as CloudEvents' HTTP binding requires
// (1.0.2, section 3.1.3.2). The SDK (v2.16.2) does not escape them.
func escapeHeaders(header http.Header) {
	for name, values := range header {
		if !strings.HasPrefix(name, attributeHeader) {
			continue
		}
		for i := range values {
			values[i] = escapeValue(values[i])
		}
	}
}

// escapeValue percent-encodes spaces, double quotes, percent signs, and all bytes that are not
// printable ASCII.
func escapeValue(value string) string {
	const hexadecimal = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(value) {
		switch c := value[i]; {
		case c <= ' ', c > '~', c == '"', c == '%':
			b.WriteByte('%')
			b.WriteByte(hexadecimal[c>>4])
			b.WriteByte(hexadecimal[c&0xf])
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
