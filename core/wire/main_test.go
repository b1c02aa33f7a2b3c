package wire

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scan is Scan for tests that expect it to pass.
func scan(t *testing.T, msg string) *Envelope {
	t.Helper()
	var e Envelope
	if err := e.Scan([]byte(msg), DefaultMaxDepth); err != nil {
		t.Fatalf("Scan(%s): %v", msg, err)
	}
	return &e
}

// scanFault is the fault that Scan returns, nil if it passes.
func scanFault(msg string) *Fault {
	var e Envelope
	f, _ := e.Scan([]byte(msg), DefaultMaxDepth).(*Fault)
	return f
}

// wantFault compares code and field; an empty code means that there is none.
func wantFault(t *testing.T, what string, got *Fault, code, field string) {
	t.Helper()
	switch {
	case got == nil && code == "":
	case got == nil:
		t.Errorf("%s: passed, want %s %q", what, code, field)
	case code == "":
		t.Errorf("%s: %v (field %q), want it to pass", what, got, got.Field)
	case got.Code.String() != code || got.Field != field:
		t.Errorf("%s: %v (field %q), want %s %q", what, got, got.Field, code, field)
	case got.Text == "":
		t.Errorf("%s: a fault without a text", what)
	}
}
