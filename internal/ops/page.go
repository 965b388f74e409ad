package ops

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
)

// Info is what the start page says about the gateway.
type Info struct {
	Version string
	// Mode is "dev" or "serve".
	Mode string
	// GRPCAddr is where clients connect.
	GRPCAddr string
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page serves the start page, which is the same for everybody.
func page(info Info) http.Handler {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, info); err != nil {
		panic("ops: start page: " + err.Error())
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(b.Bytes())
	})
}
