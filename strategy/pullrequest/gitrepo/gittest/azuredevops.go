package gittest

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
)

// refusal is the response of Azure DevOps to a client without multi_ack.
const refusal = "TF401041: The Git protocol sent is not as expected (Clients must support multi-ack.)."

// LikeAzureDevOps changes a Git server as Azure DevOps differs from Git's own: it speaks only
// the first version of the protocol, and responds with 400 to a fetch whose client requests
// neither multi_ack nor multi_ack_detailed.
func LikeAzureDevOps(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Git-Protocol")
		if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			first, _, _ := bytes.Cut(body, []byte("\n"))
			requested := strings.Fields(string(first))
			if !slices.Contains(requested, "multi_ack") && !slices.Contains(requested, "multi_ack_detailed") {
				http.Error(w, refusal, http.StatusBadRequest)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
