package main

import (
	"fmt"
	"strconv"
	"strings"
)

// byteSize is a number of bytes, written with or without a unit.
type byteSize int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *byteSize) UnmarshalText(text []byte) error {
	s, unit := strings.TrimSpace(string(text)), int64(1)
	for _, u := range []struct {
		suffix string
		n      int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}} {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = strings.TrimSpace(rest), u.n
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/unit {
		return fmt.Errorf("%q is not a size: a number of bytes, or one with KiB, MiB or GiB", text)
	}
	*b = byteSize(n * unit)
	return nil
}
