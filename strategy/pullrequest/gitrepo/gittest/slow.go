package gittest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"time"
)

// Slow changes a Git server so that it sends each pack steadily, but slowly: in so many pieces
// of about the same size, with a pause before each. Git's other requests are as fast as before.
func Slow(next http.Handler, pieces int, pause time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
			next.ServeHTTP(w, r)
			return
		}
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, r)
		for key, values := range whole.Header() {
			w.Header()[key] = values
		}
		w.WriteHeader(whole.Code)
		ticker := time.NewTicker(pause) //nolint:forbidigo // A server that is slow in real time.
		defer ticker.Stop()
		left := whole.Body
		size := left.Len()/pieces + 1
		for left.Len() > 0 {
			select {
			case <-r.Context().Done():
				return
			case <-ticker.C:
			}
			if _, err := w.Write(left.Next(size)); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	})
}
