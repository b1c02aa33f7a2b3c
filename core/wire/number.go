package wire

import (
	"math"
	"strconv"
)

// ParseInteger reads a JSON number that is an integer however it is written:
// 1000, 1000.0, 1e3, 20000e-1, -5 (PROTOCOL.md section 3). It is exact; ok is
// false for a fraction, for what does not fit and for what is no number. The
// work is linear in len(raw), whatever the exponent says.
func ParseInteger(raw []byte) (v int64, ok bool) {
	if v, ok = parseDigits(raw); ok {
		return v, true
	}
	if len(raw) == 0 || skipNumber(raw, 0) != len(raw) {
		return 0, false
	}
	i := 0
	negative := raw[0] == '-'
	if negative {
		i++
	}
	n, scale, i, ok := significand(raw, i)
	if !ok {
		return 0, false
	}
	scale += exponent(raw[i:])
	if n == 0 {
		return 0, true
	}
	if scale < 0 || scale > 18 { // n ends in a digit that is not 0
		return 0, false
	}
	for ; scale > 0; scale-- {
		if n > math.MaxInt64/10 {
			return 0, false
		}
		n *= 10
	}
	switch {
	case n <= math.MaxInt64 && negative:
		return -int64(n), true
	case n <= math.MaxInt64:
		return int64(n), true
	case negative && n == 1<<63:
		return math.MinInt64, true
	}
	return 0, false
}

// parseDigits reads an integer that is written as most are: a few digits, the first of them no 0.
func parseDigits(raw []byte) (v int64, ok bool) {
	if len(raw) == 0 || len(raw) > 18 || raw[0] == '0' {
		return 0, false
	}
	for _, c := range raw {
		if c-'0' > 9 {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return v, true
}

// significand reads the digits of a valid number from i, with or without a
// point, as n * 10^scale where n ends in a digit other than 0 (or is 0). ok is
// false where n has more than 19 digits: no int64 has so many.
func significand(raw []byte, i int) (n uint64, scale, next int, ok bool) {
	zeros, point := 0, false
	for ; i < len(raw) && raw[i]|0x20 != 'e'; i++ {
		c := raw[i]
		if c == '.' {
			point = true
			continue
		}
		if point {
			scale--
		}
		if c == '0' {
			if n != 0 {
				zeros++
			}
			continue
		}
		for ; zeros >= 0; zeros-- {
			if n > (math.MaxUint64-9)/10 {
				return 0, 0, 0, false
			}
			n *= 10
		}
		zeros = 0
		n += uint64(c - '0')
	}
	return n, scale + zeros, i, true
}

// exponent reads what follows the digits of a valid number: nothing, or e and
// an exponent. It is cut at a value no number of digits can make up for.
func exponent(b []byte) int {
	const most = 1 << 40
	if len(b) == 0 {
		return 0
	}
	b = b[1:]
	negative := b[0] == '-'
	if negative || b[0] == '+' {
		b = b[1:]
	}
	e := 0
	for _, c := range b {
		if e < most {
			e = e*10 + int(c-'0')
		}
	}
	if negative {
		return -e
	}
	return e
}

// isPercent reports whether a JSON number lies between 0 and 100, exactly: no rounding
// lets 100.00000000000000000000000001 or -1e-400 in.
func isPercent(raw []byte) bool {
	if len(raw) == 0 || skipNumber(raw, 0) != len(raw) {
		return false
	}
	i := 0
	if raw[0] == '-' {
		i = 1
	}
	// The number is 0.d1d2d3... * 10^scale with d1 != 0.
	scale, point, first, more := 0, false, byte(0), false
	for ; i < len(raw) && raw[i]|0x20 != 'e'; i++ {
		switch c := raw[i]; {
		case c == '.':
			point = true
			continue
		case first != 0:
			more = more || c != '0'
		case c != '0':
			first = c
		}
		if !point && first != 0 {
			scale++
		} else if point && first == 0 {
			scale--
		}
	}
	if first == 0 {
		return true
	}
	scale += exponent(raw[i:])
	return raw[0] != '-' && (scale < 3 || scale == 3 && first == '1' && !more)
}

// ParseNumber reads a JSON number as a float64; ok is false for what is no
// number or not finite as one, 1e400.
func ParseNumber(raw []byte) (v float64, ok bool) {
	if len(raw) == 0 || skipNumber(raw, 0) != len(raw) {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	return v, err == nil && !math.IsInf(v, 0)
}
