package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// web holds the files of the console. They are public: the scripts read all data from /api/v1 with the rights of the
// user that has logged in.
//
//go:embed web
var web embed.FS

// pagePaths are the paths of pages. weir answers each path with the same document. The document's script draws the
// page.
var pagePaths = []string{
	"/{$}", "/buckets", "/bucket", "/letters", "/letter", "/redrives", "/jobs", "/job", "/limits", "/spend", "/replicas", "/doctor", "/configuration", "/events",
}

// pagePolicy restricts a page in the browser: the page loads and runs only files of weir, and sends requests only to
// weir. No script builds markup from strings, so data from outside is always shown as text.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// fileTypes maps the extensions of the console's files to their content types. weir serves no other files.
var fileTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// file is one file of the console.
type file struct {
	kind, tag string
	data      []byte
}

// pageRoutes returns the routes of the pages and of their files.
func pageRoutes() ([]Route, error) {
	files, err := webFiles()
	if err != nil {
		return nil, err
	}
	document := files["index.html"]
	var routes []Route
	for _, at := range pagePaths {
		routes = append(routes, Route{Method: "GET", Path: at, Role: Anybody, Page: true, Serve: func(w http.ResponseWriter, r *http.Request, _ Actor) {
			w.Header().Set("Content-Security-Policy", pagePolicy)
			w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
			document.serve(w, r)
		}})
	}
	routes = append(routes, Route{Method: "GET", Path: "/config", Role: Anybody, Page: true, Serve: func(w http.ResponseWriter, r *http.Request, _ Actor) {
		http.Redirect(w, r, "/configuration", http.StatusFound)
	}})
	return append(routes, Route{Method: "GET", Path: "/console/{file...}", Role: Anybody, Serve: func(w http.ResponseWriter, r *http.Request, _ Actor) {
		f, ok := files[r.PathValue("file")]
		if !ok || r.PathValue("file") == "index.html" {
			NewProblem(http.StatusNotFound, "there is no GET %s", r.URL.Path).Write(w)
			return
		}
		f.serve(w, r)
	}}), nil
}

// showNowhere answers a browser's request for an unknown page with the console's own page. It reports whether it
// has answered.
func showNowhere(w http.ResponseWriter, r *http.Request) bool {
	outside := strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, "/v1/") || strings.HasPrefix(r.URL.Path, "/console/")
	if r.Method != http.MethodGet || outside || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return false
	}
	document, err := web.ReadFile("web/index.html")
	if err != nil {
		return false
	}
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Content-Type", fileTypes[".html"])
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write(document) // an error means that the client has gone
	return true
}

func webFiles() (map[string]file, error) {
	files := map[string]file{}
	err := fs.WalkDir(web, "web", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := web.ReadFile(at)
		if err != nil {
			return err
		}
		kind, ok := fileTypes[path.Ext(at)]
		if !ok {
			return fmt.Errorf("%s has a type that weir does not serve", at)
		}
		sum := sha256.Sum256(data)
		files[at[len("web/"):]] = file{kind, `"` + hex.EncodeToString(sum[:12]) + `"`, data}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the console's files: %w", err)
	}
	return files, nil
}

// serve answers with the file, or with 304 if the browser's copy is current. Browsers ask each time, so a page has
// files of two versions only for a short time.
func (f file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.kind)
	WriteBody(w, http.StatusOK, f.data)
}
