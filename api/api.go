// Package api holds the descriptions of Subway's interfaces: openapi.yaml (HTTP, OpenAPI 3.1), asyncapi.yaml
// (WebSocket, AsyncAPI 3) and schemas/ (one JSON Schema 2020-12 per message).
//
// They are written by hand after PROTOCOL.md, embedded, and served by the gateway at /openapi.json, /asyncapi.yaml and
// /schemas/{name}. The package contract beside this one holds real answers and messages against them.
package api

import (
	"embed"
	"io/fs"
	"sync"

	"github.com/goccy/go-yaml"
)

//go:embed openapi.yaml
var openAPI []byte

//go:embed asyncapi.yaml
var asyncAPI []byte

//go:embed schemas/*.json
var schemas embed.FS

var openAPIJSON = sync.OnceValue(func() []byte {
	out, err := yaml.YAMLToJSON(openAPI)
	if err != nil {
		// The document is part of the binary and loaded by the tests.
		panic("BUG: openapi.yaml: " + err.Error())
	}
	return out
})

// OpenAPIJSON returns the OpenAPI 3.1 document of the HTTP API (PROTOCOL.md sections 6 and 7) as JSON. It is converted
// once. The bytes are shared and must not be modified. Any goroutine may call it.
func OpenAPIJSON() []byte { return openAPIJSON() }

// AsyncAPIYAML returns the AsyncAPI 3.0 document of the WebSocket messages (PROTOCOL.md sections 2 and 3). Its payloads
// refer to ./schemas/{name}. The bytes are shared and must not be modified. Any goroutine may call it.
func AsyncAPIYAML() []byte { return asyncAPI }

// Schema returns the JSON Schema file of that name, "command.json" for example, and whether there is one. The bytes are
// the caller's own. Any goroutine may call it; a name from a request is safe.
func Schema(name string) ([]byte, bool) {
	out, err := schemas.ReadFile("schemas/" + name)
	return out, err == nil
}

// SchemaNames returns the names of the schema files, sorted. Any goroutine may call it.
func SchemaNames() []string {
	entries, err := fs.ReadDir(schemas, "schemas")
	if err != nil {
		panic("BUG: the embedded schemas: " + err.Error())
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}
