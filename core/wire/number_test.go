package wire

import (
	"math"
	"strings"
	"testing"
)

func TestParseInteger(t *testing.T) {
	f := func(s string, want int64) {
		t.Helper()
		if v, ok := ParseInteger([]byte(s)); v != want || !ok {
			t.Errorf("%.60s: %d, %v, want %d", s, v, ok, want)
		}
	}
	f("0", 0)
	f("-0", 0)
	f("0.000", 0)
	f("0e99999999999999999999999", 0)
	f("1000", 1000)
	f("1000.0", 1000)
	f("1e3", 1000)
	f("1.5E+3", 1500)
	f("20000e-1", 2000)
	f("8.64e7", 86400000)
	f("-5", -5)
	f("-1.25e2", -125)
	f("9223372036854775807", math.MaxInt64)
	f("-9223372036854775808", math.MinInt64)
	f("9223372036854775807.000", math.MaxInt64)
	f("922337203685477580700e-2", math.MaxInt64)
	f("0.001e3", 1)
	f("0."+strings.Repeat("0", 100_000)+"1e100001", 1)
	f("1"+strings.Repeat("0", 100_000)+"e-100000", 1)
	f("10"+"."+strings.Repeat("0", 100_000), 10)
	g := func(s string) {
		t.Helper()
		if v, ok := ParseInteger([]byte(s)); ok {
			t.Errorf("%.60s: %d", s, v)
		}
	}
	for _, s := range []string{
		"", "-", "1.5", "15e-1", "1e-3", "0.5", "1000.5", "1e19", "9223372036854775808", "-9223372036854775809", "1e400", "1e999999999999999999999", "1e-999999999999999999999",
		"18446744073709551615", "18446744073709551616", "99999999999999999999", "0.1e0", "1e", "01", "+1", " 1", "1 ", `"1"`, "true", "null", "NaN", "0x10", "1.", ".5", "1_0", "１",
	} {
		g(s)
	}
}

func TestParseNumber(t *testing.T) {
	f := func(s string, want float64) {
		t.Helper()
		if v, ok := ParseNumber([]byte(s)); v != want || !ok {
			t.Errorf("%s: %v, %v", s, v, ok)
		}
	}
	f("0", 0)
	f("33.3", 33.3)
	f("1e2", 100)
	f("-1.5", -1.5)
	f("1e-400", 0)
	for _, s := range []string{"", "1e400", "-1e400", "NaN", "Inf", "0x1p4", "1_0", "+1", "01", `"1"`, "true", "1 "} {
		if v, ok := ParseNumber([]byte(s)); ok {
			t.Errorf("%s: %v", s, v)
		}
	}
}
