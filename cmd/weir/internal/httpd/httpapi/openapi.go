package httpapi

import (
	_ "embed"
	"net/http"

	"weir/cmd/weir/internal/httpd/console"
)

// document describes everything under /api/v1 and /v1 (OpenAPI 3.1). TestDocumentIsUpToDate writes it from the table of
// routes and the types of their answers. The comments of these types become its descriptions:
// UPDATE_OPENAPI=1 go test ./cmd/weir/internal/httpd/httpapi.
//
//go:embed openapi.json
var document []byte

// serveDocument answers with the document.
func serveDocument(w http.ResponseWriter, _ *request) {
	w.Header().Set("Content-Type", "application/json")
	console.WriteBody(w, http.StatusOK, document)
}
