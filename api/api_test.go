package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"subway/api"
)

// load reads a document and judges all of it, examples included.
func load(raw []byte, opts ...openapi3.ValidationOption) (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background(), opts...)
}

var loaded = sync.OnceValues(func() (*openapi3.T, error) { return load(api.OpenAPIJSON(), openapi3.EnableMultiError()) })

// document is the one that is served.
func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestOpenAPIIsValid(t *testing.T) {
	doc := document(t)
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("openapi: %s", doc.OpenAPI)
	}
	if first, again := api.OpenAPIJSON(), api.OpenAPIJSON(); &first[0] != &again[0] {
		t.Error("the document is converted more than once")
	}
}

// What the check above finds is worth only what it would not let pass.
func TestOpenAPICheckCanFail(t *testing.T) {
	f := func(name, old, new string) {
		t.Helper()
		doc := string(api.OpenAPIJSON())
		if !strings.Contains(doc, old) {
			t.Fatalf("%s: the document has no %s", name, old)
		}
		if _, err := load([]byte(strings.Replace(doc, old, new, 1))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	f("an example of the wrong kind", `"attempts": 1`, `"attempts": "one"`)
	f("an example with a member too many", `"executionTime": 42`, `"executionTimes": 42`)
	f("a reference to nothing", `#/components/responses/BadRequest`, `#/components/responses/BadRequests`)
	f("an unknown keyword", `"operationId": "getHealth"`, `"operationID": "getHealth"`)
}

// TestPaths holds the paths and methods against PROTOCOL.md section 6 (and the descriptions themselves).
func TestPaths(t *testing.T) {
	want := map[string]string{
		"/": "GET", "/ws": "GET", "/healthz": "GET", "/readyz": "GET", "/metrics": "GET", "/version": "GET",
		"/openapi.json": "GET", "/asyncapi.yaml": "GET", "/schemas/{name}": "GET",
		"/api/commands": "GET POST", "/api/command": "POST", "/api/commands/batch": "POST", "/api/commands/{ref}": "DELETE GET",
		"/api/traces/{ref}": "GET", "/api/devices": "GET", "/api/devices/{id}": "GET", "/api/edges": "GET", "/api/edges/{id}": "GET",
		"/api/callbacks": "GET", "/api/callbacks/{id}/retry": "POST",
	}
	doc := document(t)
	got := make(map[string]string)
	for path, item := range doc.Paths.Map() {
		got[path] = strings.Join(slices.Sorted(maps.Keys(item.Operations())), " ")
	}
	if !maps.Equal(got, want) {
		t.Errorf("paths:\n got %v\nwant %v", got, want)
	}
}

// TestOperations: each operation says what it is, and has an example of each JSON body it takes or gives.
func TestOperations(t *testing.T) {
	doc := document(t)
	ids := make(map[string]bool)
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			where := method + " " + path
			if op.OperationID == "" || op.Summary == "" || len(op.Tags) != 1 || ids[op.OperationID] {
				t.Errorf("%s: operationId %q, summary %q, tags %v", where, op.OperationID, op.Summary, op.Tags)
			}
			ids[op.OperationID] = true
			if op.Responses.Default() == nil || op.Responses.Value("500") == nil || op.Responses.Value("400") == nil {
				t.Errorf("%s lacks default, 400 or 500", where)
			}
			if op.RequestBody != nil {
				checkExamples(t, where+" request", op.RequestBody.Value.Content)
			}
			for status, ref := range op.Responses.Map() {
				checkExamples(t, where+" "+status, ref.Value.Content)
			}
		}
	}
	checkExamples(t, "callback", doc.Webhooks["callback"].Post.RequestBody.Value.Content)
}

func checkExamples(t *testing.T, where string, content openapi3.Content) {
	t.Helper()
	for media, m := range content {
		if strings.Contains(media, "json") && len(m.Examples) == 0 {
			t.Errorf("%s: no example of %s", where, media)
		}
	}
}

// TestComponentsAreUsed finds what nothing refers to any more.
func TestComponentsAreUsed(t *testing.T) {
	raw := api.OpenAPIJSON()
	doc := document(t)
	used := func(kind, name string) {
		ref := `"$ref": "#/components/` + kind + `/` + name + `"`
		stray := kind == "responses" && name == "MethodNotAllowed" // the answer of every path
		if !stray && !bytes.Contains(raw, []byte(ref)) {
			t.Errorf("nothing refers to %s/%s", kind, name)
		}
	}
	for name := range doc.Components.Schemas {
		used("schemas", name)
	}
	for name := range doc.Components.Responses {
		used("responses", name)
	}
	for name := range doc.Components.Parameters {
		used("parameters", name)
	}
	for name := range doc.Components.Headers {
		used("headers", name)
	}
	for name := range doc.Components.Examples {
		used("examples", name)
	}
}

func TestSchemaFiles(t *testing.T) {
	for _, name := range api.SchemaNames() {
		raw, ok := api.Schema(name)
		if !ok {
			t.Fatalf("%s is listed and not there", name)
		}
		var head struct {
			ID     string `json:"$id"`
			Schema string `json:"$schema"`
			Title  string `json:"title"`
			Text   string `json:"description"`
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if head.ID != "https://subway.example/schemas/"+name || head.Schema != "https://json-schema.org/draft/2020-12/schema" || head.Title == "" || head.Text == "" {
			t.Errorf("%s: %+v", name, head)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := metaSchema(t).Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "../api.go", "/command.json", "command", "no-such.json", "command.json/", "..\\api.go", "common.json\x00"} {
		if raw, ok := api.Schema(name); ok {
			t.Errorf("Schema(%q) is there: %.40s", name, raw)
		}
	}
}

func metaSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile("https://json-schema.org/draft/2020-12/schema")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
