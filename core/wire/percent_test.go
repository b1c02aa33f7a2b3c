package wire

import (
	"math/big"
	"strings"
	"testing"
)

func TestIsPercent(t *testing.T) {
	f := func(raw string, want bool) {
		t.Helper()
		if got := isPercent([]byte(raw)); got != want {
			t.Errorf("isPercent(%s) = %v", raw, got)
		}
	}
	for _, raw := range []string{"0", "-0", "0.0", "-0.0e9", "100", "100.0", "1e2", "10000e-2", "0.1E3", "99.99999999999999999999999", "33.3", "1e-400", "0e999999999999999999999", "1e-99999999999999999999", "000"[:1], "0." + strings.Repeat("0", 500) + "1e503"} {
		f(raw, true)
	}
	for _, raw := range []string{"", "x", "01", "101", "-1", "-0.5", "100.01", "100.00000000000000000000000001", "-1e-400", "1e3", "1e400", "0.11e4", "2e2", "1e99999999999999999999", "0." + strings.Repeat("0", 500) + "2e503", `"40"`, "[40]", "true"} {
		f(raw, false)
	}
}

func FuzzIsPercent(f *testing.F) {
	for _, s := range []string{"100", "1e2", "100.000001", "-1e-9", "0.1e3"} {
		f.Add(s)
	}
	hundred := big.NewRat(100, 1)
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 60 || skipNumber([]byte(s), 0) != len(s) || len(s) == 0 {
			return
		}
		if e := strings.IndexAny(s, "eE"); e >= 0 && len(s)-e > 5 {
			return // big.Rat would take its time
		}
		want, ok := new(big.Rat).SetString(s)
		if !ok {
			return
		}
		if got := isPercent([]byte(s)); got != (want.Sign() >= 0 && want.Cmp(hundred) <= 0) {
			t.Errorf("isPercent(%s) = %v", s, got)
		}
	})
}
