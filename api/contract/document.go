package contract

import (
	"bytes"
	"fmt"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"subway/api"
)

// documentURL is the name under which the OpenAPI document is a JSON Schema resource.
const documentURL = "https://subway.example/openapi.json"

// document loads the OpenAPI document once.
var document = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPIJSON())
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return doc, nil
})

// bodies compiles the schemas of the document as they are asked for and keeps them: kin-openapi compiles a schema anew
// for each value, which takes milliseconds. The table is bounded by the document.
var bodies struct {
	sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by JSON pointer
}

// bodySchema returns the schema at a JSON pointer of the document.
func bodySchema(at string) (*jsonschema.Schema, error) {
	bodies.Lock()
	defer bodies.Unlock()
	if s, ok := bodies.schemas[at]; ok {
		return s, nil
	}
	if bodies.compiler == nil {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.OpenAPIJSON()))
		if err != nil {
			return nil, err
		}
		c := jsonschema.NewCompiler()
		c.DefaultDraft(jsonschema.Draft2020)
		c.UseLoader(nowhere{})
		if err := c.AddResource(documentURL, doc); err != nil {
			return nil, err
		}
		bodies.compiler, bodies.schemas = c, make(map[string]*jsonschema.Schema)
	}
	s, err := bodies.compiler.Compile(documentURL + "#" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(at))
	if err != nil {
		return nil, err
	}
	bodies.schemas[at] = s
	return s, nil
}

// checkBody judges a JSON body by the schema at a JSON pointer of the document.
func checkBody(at string, body []byte) error {
	s, err := bodySchema(at)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return s.Validate(value)
}

// escape makes a member name a reference token of a JSON pointer (RFC 6901).
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
