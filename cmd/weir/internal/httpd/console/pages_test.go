package console

import (
	"io/fs"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPagesAreOfOneDocument checks that the pages of the script and the paths of the server are the same. Each path
// answers with the document and a policy that admits only files of weir. It needs no login, because a page itself has
// no data.
func TestPagesAreOfOneDocument(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", token)
	var drawn []string
	address := regexp.MustCompile(`(?m)^  path: "([^"]+)"`)
	err := fs.WalkDir(web, "web/pages", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := web.ReadFile(at)
		for _, m := range address.FindAllSubmatch(text, -1) {
			drawn = append(drawn, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, at := range pagePaths {
		at = strings.TrimSuffix(at, "{$}")
		if !slices.Contains(drawn, at) {
			t.Errorf("no page is drawn at %s", pagePaths[i])
		}
		res, body := ask(t, s, request{path: at})
		policy := res.Header.Get("Content-Security-Policy")
		if res.StatusCode != 200 || !strings.Contains(body, `src="/console/app.js"`) || policy != pagePolicy || strings.Contains(policy, "unsafe") {
			t.Errorf("%s answers %d with the policy %q: %s", at, res.StatusCode, policy, body)
		}
	}
	if len(drawn) != len(pagePaths) {
		t.Errorf("pages are drawn at %v, and served at %v", drawn, pagePaths)
	}
}

// TestFilesOfPages checks that every file that the document and the scripts name is served with its type, that a
// browser with a current copy gets 304, and that no other file is served.
func TestFilesOfPages(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", token)
	files, err := webFiles()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range files {
		if name == "index.html" {
			continue
		}
		res, body := ask(t, s, request{path: "/console/" + name})
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != f.kind || body != string(f.data) || res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s answers %d as %s", name, res.StatusCode, res.Header.Get("Content-Type"))
		}
		res, body = ask(t, s, request{path: "/console/" + name, header: map[string]string{"If-None-Match": res.Header.Get("ETag")}})
		if res.StatusCode != http.StatusNotModified || body != "" {
			t.Errorf("%s answers %d to a client that has it", name, res.StatusCode)
		}
	}
	for _, at := range []string{"/console/", "/console/index.html", "/console/none.js", "/console/../server.go", "/console/pages", "/nothing"} {
		if res, _ := ask(t, s, request{path: at}); res.StatusCode == 200 {
			t.Errorf("%s is served", at)
		}
	}
}

// TestPagesPutNoMarkupTogether checks that scripts create elements and texts, and never markup, which text from outside
// could become part of. Nothing is loaded from elsewhere.
func TestPagesPutNoMarkupTogether(t *testing.T) {
	files, err := webFiles()
	if err != nil {
		t.Fatal(err)
	}
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\(|new Function|javascript:|setAttribute\("style|https?://[^w]`)
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script>|<script [^>]*>[^<]`)
	for name, f := range files {
		if found := forbidden.Find(f.data); found != nil {
			t.Errorf("%s has %q", name, found)
		}
		if strings.HasSuffix(name, ".html") && inline.Match(f.data) {
			t.Errorf("%s has script or style in it", name)
		}
	}
}
