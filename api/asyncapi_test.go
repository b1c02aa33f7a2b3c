package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"subway/api"
	"subway/api/contract"
)

type object = map[string]any

// asyncDocument is asyncapi.yaml as JSON values.
func asyncDocument(t *testing.T) object {
	t.Helper()
	raw, err := yaml.YAMLToJSON(api.AsyncAPIYAML())
	if err != nil {
		t.Fatal(err)
	}
	var doc object
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// at follows a path of member names.
func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(object)
		v = m[name]
	}
	return v
}

// refs calls f with every $ref in v.
func refs(v any, f func(ref string)) {
	switch v := v.(type) {
	case object:
		for name, x := range v {
			if s, ok := x.(string); ok && name == "$ref" {
				f(s)
			}
			refs(x, f)
		}
	case []any:
		for _, x := range v {
			refs(x, f)
		}
	}
}

func TestAsyncAPIRefs(t *testing.T) {
	doc := asyncDocument(t)
	if doc["asyncapi"] != "3.0.0" {
		t.Errorf("asyncapi: %v", doc["asyncapi"])
	}
	used := map[string]bool{"common.json": true}
	refs(doc, func(ref string) {
		if name, ok := strings.CutPrefix(ref, "./schemas/"); ok {
			used[name] = true
			if _, ok := api.Schema(name); !ok {
				t.Errorf("%s is not there", ref)
			}
		} else if path, ok := strings.CutPrefix(ref, "#/"); !ok || at(doc, strings.Split(path, "/")...) == nil {
			t.Errorf("%s leads nowhere", ref)
		}
	})
	for _, name := range api.SchemaNames() {
		if !used[name] {
			t.Errorf("no message has the schema %s", name)
		}
	}
}

// TestAsyncAPIMessages: every type of section 3 is there, its examples are what its schema says, and so is the name.
func TestAsyncAPIMessages(t *testing.T) {
	want := []string{"REGISTER", "REGISTER_ACK", "UNREGISTER", "COMMAND", "COMMAND_ACK", "COMMAND_RESPONSE", "PROGRESS_UPDATE", "CANCEL",
		"DEVICE_STATUS", "CONNECTION_STATUS", "HEARTBEAT", "HEARTBEAT_ACK", "ERROR"}
	var got []string
	for name, m := range at(asyncDocument(t), "components", "messages").(object) {
		typ, _ := at(m, "name").(string)
		got = append(got, typ)
		ref, _ := at(m, "payload", "schema", "$ref").(string)
		examples, _ := at(m, "examples").([]any)
		if len(examples) == 0 {
			t.Errorf("%s has no example", name)
		}
		for _, x := range examples {
			raw, err := json.Marshal(at(x, "payload"))
			if err != nil {
				t.Fatal(err)
			}
			if at(x, "payload", "type") != typ {
				t.Errorf("%s: an example of type %v", name, at(x, "payload", "type"))
			}
			contract.ValidateAs(t, strings.TrimPrefix(ref, "./schemas/"), raw)
		}
	}
	slices.Sort(got)
	got = slices.Compact(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("message types:\n got %v\nwant %v", got, want)
	}
}

// TestAsyncAPIOperations: each is one party's, and its messages are its channel's.
func TestAsyncAPIOperations(t *testing.T) {
	doc := asyncDocument(t)
	parties := make(map[string]bool)
	for name, op := range at(doc, "operations").(object) {
		party := strings.TrimRight(name[:strings.IndexFunc(name, func(r rune) bool { return r < 'a' })], " ")
		action, _ := at(op, "action").(string)
		parties[party+" "+action] = true
		for _, o := range []any{op, at(op, "reply")} {
			channel, _ := at(o, "channel", "$ref").(string)
			refs(at(o, "messages"), func(ref string) {
				if !strings.HasPrefix(ref, channel+"/messages/") {
					t.Errorf("%s: %s is not of %s", name, ref, channel)
				}
			})
		}
	}
	for _, p := range []string{"backend send", "backend receive", "edge send", "edge receive", "device send", "device receive"} {
		if !parties[p] {
			t.Errorf("no operation in which a party does this: %s", p)
		}
	}
	if len(parties) != 6 {
		t.Errorf("parties: %v", parties)
	}
}

// TestAsyncAPICloseCodes holds the table against PROTOCOL.md section 2.
func TestAsyncAPICloseCodes(t *testing.T) {
	text := fmt.Sprint(at(asyncDocument(t), "channels", "gateway", "description"))
	for _, code := range []int{1000, 1001, 1002, 1003, 1007, 1009, 1013, 4400, 4401, 4403, 4408, 4409, 4410, 4426, 4429} {
		if !strings.Contains(text, "| "+strconv.Itoa(code)+" |") {
			t.Errorf("close code %d is not described", code)
		}
	}
}
