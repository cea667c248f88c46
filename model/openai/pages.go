package openai

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
)

// The page has no build step: the files of the folder are sent as they are.
//
//go:embed page
var pageFiles embed.FS

// contentPolicy allows only our own files, and nothing inline. Text of models and
// of others is put into the page as text nodes; this policy protects the page if
// that were ever forgotten.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// pages are / and the files beside it. They need no token: they contain nothing
// secret, and the page itself asks for one.
func (a *api) pages(mux *http.ServeMux) {
	files, err := fs.ReadDir(pageFiles, "page")
	if err != nil {
		panic(err) // it is compiled in
	}
	for _, f := range files {
		data, err := fs.ReadFile(pageFiles, path.Join("page", f.Name()))
		if err != nil {
			panic(err)
		}
		route := "GET /page/" + f.Name()
		if f.Name() == "index.html" {
			route = "GET /{$}"
		}
		mux.Handle(route, page(f.Name(), data))
	}
}

// kinds replaces the system's table of types, which may contain anything.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

func page(name string, data []byte) http.Handler {
	digest := sha256.Sum256(data)
	etag := `"` + hex.EncodeToString(digest[:12]) + `"`
	kind := kinds[path.Ext(name)]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Content-Type", kind)
		h.Set("Cache-Control", "no-cache") // ask each time whether it changed
		h.Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(data) // a client that is gone needs no answer
	})
}
