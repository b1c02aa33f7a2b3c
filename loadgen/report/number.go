package report

import (
	"math"
	"strconv"
	"strings"
)

// toMs gives milliseconds to the microsecond.
func toMs(ns int64) float64 { return math.Round(float64(ns)/1e3) / 1e3 }

// round rounds to so many decimal places; what is no number becomes 0, as JSON has none.
func round(x float64, places int) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	p := math.Pow10(places)
	if r := math.Round(x*p) / p; !math.IsInf(r, 0) {
		return r
	}
	return x
}

// group writes a whole number with commas.
func group(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

func commandsText(n int64) string {
	if n == 1 {
		return "1 command"
	}
	return group(n) + " commands"
}

// countLabel writes a tick of a count axis.
func countLabel(x float64) string {
	if x >= 10 {
		return group(int64(math.Round(min(x, 1e18))))
	}
	return trimmed(round(x, 6))
}

// rateText writes a rate: whole from 10 on, as a fraction of a command says nothing there.
func rateText(x float64) string {
	x = round(x, 9)
	if math.Abs(x) >= 10 || x == math.Trunc(x) {
		return group(int64(math.Round(min(max(x, -1e18), 1e18))))
	}
	return significant(x, 2)
}

// significant writes x to so many digits, never in scientific notation.
func significant(x float64, n int) string {
	x = round(x, 9)
	if x == 0 {
		return "0"
	}
	places := n - 1 - int(math.Floor(math.Log10(math.Abs(x))))
	x = round(x, max(places, 0))
	// Rounding may have made it a digit longer: 0.0996 to 0.100, which is 0.10.
	places = max(n-1-int(math.Floor(math.Log10(math.Abs(x)))), 0)
	if places == 0 {
		return group(int64(math.Round(min(max(x, -1e18), 1e18))))
	}
	return strconv.FormatFloat(x, 'f', places, 64)
}

// msText writes a duration given in milliseconds, with its unit.
func msText(ms float64, n int) string {
	switch {
	case ms < 0.0995: // to the microsecond, as that is what is measured
		return trimmed(round(ms, 3)) + " ms"
	case ms < 999.5:
		return significant(ms, n) + " ms"
	case ms < 600_000:
		return significant(ms/1e3, n) + " s"
	}
	return significant(ms/60_000, n) + " min"
}

// secondsText writes a length of time given in seconds.
func secondsText(s float64) string {
	switch {
	case s < 120:
		return trimmed(round(s, 2)) + " s"
	case s < 3*3600:
		return trimmed(round(s/60, 1)) + " min"
	}
	return trimmed(round(s/3600, 1)) + " h"
}

func trimmed(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// percentText writes a part as a percentage that is 0 or 100 only where the part is.
func percentText(part float64) string {
	p := 100 * part
	switch {
	case p > 0 && p < 0.01:
		return "< 0.01 %"
	case p > 99.99 && p < 100:
		return "> 99.99 %"
	case p == 0 || p == 100 || p >= 10 && p < 99:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	case p >= 99:
		return strconv.FormatFloat(p, 'f', 2, 64) + " %"
	}
	return significant(p, 2) + " %"
}

func shareText(s Share) string {
	if !s.Known() {
		return "not known"
	}
	return strconv.FormatFloat(100*float64(s), 'f', 0, 64) + " %"
}

// bytesText writes a size in powers of 1000.
func bytesText(n float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if n < 999.5 {
			return significant(n, 3) + " " + unit
		}
		n /= 1000
	}
	return significant(n, 3) + " TB"
}

// plain makes a text from elsewhere safe for a terminal: no control characters, bounded.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > maxText {
		return cut(s, maxText) + "..."
	}
	return s
}
