// Package contract holds what a running gateway says against its published descriptions (package api). Tests of other
// packages call it with every answer and message they see; nothing but tests imports it.
//
// HTTP answers are judged by the OpenAPI document: the path template and method, the status, the required headers, the
// media type and the body. WebSocket messages are judged by the JSON Schema of their type and direction. Callback
// requests are judged by the document's webhook.
//
// Each check has two forms: Check... returns an error and may be called from any goroutine; Validate... fails the test
// and goes on.
package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// checkObject says why raw is not one JSON object in UTF-8 in which no member that counts stands twice at the top level.
func checkObject(raw []byte, counts func(name string) bool) error {
	if !utf8.Valid(raw) {
		return errors.New("not UTF-8")
	}
	if !json.Valid(raw) {
		return errors.New("not JSON")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return errors.New("not a JSON object")
	}
	seen := make(map[string]bool)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := tok.(string)
		if seen[name] && counts(name) {
			return fmt.Errorf("member %q stands twice", name)
		}
		seen[name] = true
		var skipped json.RawMessage
		if err := dec.Decode(&skipped); err != nil {
			return err
		}
	}
	return nil
}

// every counts each member.
func every(string) bool { return true }

// short cuts what a failed check quotes.
func short(raw []byte) string {
	const limit = 600
	if len(raw) <= limit {
		return string(raw)
	}
	return string(raw[:limit]) + "..."
}
