package contract

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// ValidateCallback fails the test unless a callback request, as its receiver read it, is what the document's webhook
// says (PROTOCOL.md section 7). It may be called from any goroutine.
func ValidateCallback(t testing.TB, header http.Header, body []byte) {
	t.Helper()
	if err := CheckCallback(header, body); err != nil {
		t.Errorf("contract: callback: %v\nbody: %s", err, short(body))
	}
}

// CheckCallback returns what is wrong with a callback request, see ValidateCallback. It may be called from any goroutine.
func CheckCallback(header http.Header, body []byte) error {
	doc, err := document()
	if err != nil {
		return err
	}
	op := doc.Webhooks["callback"].Post
	for _, ref := range op.Parameters {
		if err := checkHeader(ref.Value.Name, &openapi3.Header{Parameter: *ref.Value}, header); err != nil {
			return err
		}
	}
	if media := header.Get("Content-Type"); op.RequestBody.Value.Content.Get(media) == nil {
		return fmt.Errorf("Content-Type %q", media)
	}
	if err := checkObject(body, every); err != nil {
		return err
	}
	return checkBody("/webhooks/callback/post/requestBody/content/application~1json/schema", body)
}
