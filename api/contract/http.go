package contract

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// transportStatuses are what HTTP itself refuses before a path is looked at; every operation has them as `default`.
var transportStatuses = []int{http.StatusRequestTimeout, http.StatusRequestHeaderFieldsTooLarge, http.StatusNotImplemented}

// strayResponses are the answers to a path or method that is in no document, by status.
var strayResponses = map[int]string{
	400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 408: "Transport",
	413: "PayloadTooLarge", 426: "UpgradeRequired", 429: "RateLimited", 431: "Transport", 500: "Internal", 501: "Transport", 503: "Unavailable",
}

// Validate fails the test unless an HTTP answer is what the OpenAPI document says. target is the request target as it
// was sent (path and query), header the answer's, body all of it. An answer to a path or method that the document does
// not have must be the documented refusal; one to HEAD must have GET's status and media type and no body. It may be
// called from any goroutine.
func Validate(t testing.TB, method, target string, status int, header http.Header, body []byte) {
	t.Helper()
	if err := Check(method, target, status, header, body); err != nil {
		t.Errorf("contract: %s %s: %d: %v\nbody: %s", method, target, status, err, short(body))
	}
}

// Check returns what is wrong with an HTTP answer, see Validate. It may be called from any goroutine.
func Check(method, target string, status int, header http.Header, body []byte) error {
	doc, err := document()
	if err != nil {
		return err
	}
	op, item := operation(doc, method, target, status)
	response, err := responseOf(doc, op, status)
	if err != nil {
		return err
	}
	if status == http.StatusMethodNotAllowed {
		if err := checkAllow(item, header); err != nil {
			return err
		}
	}
	if method == http.MethodHead {
		return checkHead(response, header, body)
	}
	return checkResponse(response, header, body)
}

// found is an operation of the document and the JSON pointer to it.
type found struct {
	*openapi3.Operation
	at string
}

// operation finds the operation of a request: of the templates that match, the one with most literal segments that has
// the method (GET's for HEAD). A 405 is judged by the most literal one alone. Nil where there is none.
func operation(doc *openapi3.T, method, target string, status int) (*found, *openapi3.PathItem) {
	templates := matching(doc, target)
	if len(templates) == 0 {
		return nil, nil
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	first := doc.Paths.Value(templates[0])
	if status == http.StatusMethodNotAllowed {
		templates = templates[:1]
	}
	for _, template := range templates {
		if op := doc.Paths.Value(template).Operations()[method]; op != nil {
			return &found{op, "/paths/" + escape(template) + "/" + strings.ToLower(method)}, first
		}
	}
	return nil, first
}

// matching returns the path templates that match, most literal first.
func matching(doc *openapi3.T, target string) []string {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil
	}
	segments := strings.Split(u.EscapedPath(), "/")
	fixed := make(map[string]int)
	for template := range doc.Paths.Map() {
		if n, ok := literals(strings.Split(template, "/"), segments); ok {
			fixed[template] = n
		}
	}
	return slices.SortedFunc(maps.Keys(fixed), func(a, b string) int { return fixed[b] - fixed[a] })
}

// literals counts the literal segments of a template that matches.
func literals(template, segments []string) (n int, ok bool) {
	if len(template) != len(segments) {
		return 0, false
	}
	for i, t := range template {
		switch {
		case strings.HasPrefix(t, "{"):
			if segments[i] == "" {
				return 0, false
			}
		case t == segments[i]:
			n++
		default:
			return 0, false
		}
	}
	return n, true
}

// located is a response of the document and the JSON pointer to it.
type located struct {
	*openapi3.Response
	at string
}

// responseOf picks what the document says about this status.
func responseOf(doc *openapi3.T, op *found, status int) (*located, error) {
	if op == nil || status == http.StatusMethodNotAllowed {
		name, ok := strayResponses[status]
		if !ok || op != nil {
			return nil, errors.New("the document has no such answer for this path and method")
		}
		return &located{doc.Components.Responses[name].Value, "/components/responses/" + name}, nil
	}
	word := strconv.Itoa(status)
	if slices.Contains(transportStatuses, status) && op.Responses.Value(word) == nil {
		word = "default"
	}
	ref := op.Responses.Value(word)
	if ref == nil {
		return nil, errors.New("the document has no such status for this operation")
	}
	if at, ok := strings.CutPrefix(ref.Ref, "#"); ok {
		return &located{ref.Value, at}, nil
	}
	return &located{ref.Value, op.at + "/responses/" + word}, nil
}

// checkAllow holds the Allow header of a 405 against the methods of the path.
func checkAllow(item *openapi3.PathItem, header http.Header) error {
	var allowed []string
	for word := range strings.SplitSeq(strings.Join(header.Values("Allow"), ","), ",") {
		allowed = append(allowed, strings.TrimSpace(word))
	}
	if item == nil {
		return errors.New("405 for a path that is not in the document")
	}
	for method := range item.Operations() {
		if !slices.Contains(allowed, method) {
			return fmt.Errorf("the header Allow %q lacks %s", header.Get("Allow"), method)
		}
	}
	return nil
}

// checkHead: no body, the media type that GET has.
func checkHead(response *located, header http.Header, body []byte) error {
	if len(body) != 0 {
		return errors.New("an answer to HEAD has a body")
	}
	if len(response.Content) != 0 && response.Content.Get(header.Get("Content-Type")) == nil {
		return fmt.Errorf("Content-Type %q", header.Get("Content-Type"))
	}
	return nil
}

// checkResponse judges headers, media type and body.
func checkResponse(r *located, header http.Header, body []byte) error {
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if err := checkHeader(name, r.Headers[name].Value, header); err != nil {
			return err
		}
	}
	if len(r.Content) == 0 {
		return nil
	}
	media := header.Get("Content-Type")
	content := r.Content.Get(media)
	if content == nil {
		return fmt.Errorf("Content-Type %q", media)
	}
	if !strings.Contains(media, "json") {
		return nil // text, of which the document says no more
	}
	if err := checkObject(body, every); err != nil {
		return err
	}
	for key, m := range r.Content {
		if m == content {
			return checkBody(r.at+"/content/"+escape(key)+"/schema", body)
		}
	}
	return errors.New("BUG: a media type that is not of its response")
}

// checkHeader judges one header of an answer, or of a callback.
func checkHeader(name string, p *openapi3.Header, header http.Header) error {
	values := header.Values(name)
	if len(values) == 0 {
		if p.Required {
			return fmt.Errorf("%s is missing", name)
		}
		return nil
	}
	if len(values) > 1 && name != "Allow" {
		return fmt.Errorf("%s stands twice", name)
	}
	if err := p.Schema.Value.VisitJSON(values[0], openapi3.EnableJSONSchema2020()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
