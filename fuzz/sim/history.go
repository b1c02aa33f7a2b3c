package sim

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"

	"subway/core/wire"
)

// history is all that was seen, a line each, and a sum over that and over every byte of
// every message.
type history struct {
	text []byte
	ends []int // of the lines
	sum  uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// begin begins a line with the time.
func (h *history) begin(now wire.Time) []byte {
	us := int64(now-start) / 1000
	b := strconv.AppendInt(h.text, us/1e6, 10)
	return fmt.Appendf(b, ".%06d ", us%1e6)
}

func (h *history) end(b []byte) {
	from := 0
	if n := len(h.ends); n > 0 {
		from = h.ends[n-1]
	}
	h.text = b
	h.ends = append(h.ends, len(b))
	h.sum = crc32.Update(h.sum, castagnoli, b[from:])
}

// note writes what somebody did.
func (h *history) note(now wire.Time, format string, args ...any) {
	h.end(fmt.Appendf(h.begin(now), format, args...))
}

// message writes that a message went from one to another; arrow says how.
func (h *history) message(now wire.Time, who, arrow string, m *message) {
	h.sum = crc32.Update(h.sum, castagnoli, m.raw)
	b := append(append(append(h.begin(now), who...), arrow...), m.kind.String()...)
	for _, s := range [...]string{m.ref, m.id, m.target, m.word, m.stage} {
		if s != "" {
			b = append(append(b, ' '), s...)
		}
	}
	if m.kind == wire.TypeRegister && m.register.HasDevices {
		b = fmt.Appendf(b, " devices=%d", m.register.DeviceCount)
	}
	if m.kind == wire.TypeRegister && m.register.HasEdge {
		b = fmt.Appendf(b, " behind %s", m.register.EdgeID)
	}
	h.end(b)
}

const (
	mostAbout = 80 // lines of an excerpt that are about its subjects
	mostLast  = 15 // and that came last, whatever they are about
)

// excerpt returns, for each of the subjects, the last lines that name it, the first of
// them first, and then the last lines of all.
func (h *history) excerpt(subjects ...string) string {
	var out strings.Builder
	for _, s := range slices.Compact(subjects) {
		if s != "" {
			h.write(&out, "about "+s, mostAbout, func(line []byte) bool { return names(line, s) })
		}
	}
	h.write(&out, "the last", mostLast, func([]byte) bool { return true })
	return out.String()
}

// write writes the last of the lines that fit, up to most of them.
func (h *history) write(out *strings.Builder, title string, most int, fits func(line []byte) bool) {
	var lines []string
	from := 0
	for _, end := range h.ends {
		if line := h.text[from:end]; fits(line) {
			lines = append(lines, string(line))
		}
		from = end
	}
	fmt.Fprintf(out, "-- %s\n", title)
	if n := len(lines); n > most {
		fmt.Fprintf(out, "... %d lines before\n", n-most)
		lines = lines[n-most:]
	}
	out.WriteString(strings.Join(lines, "\n") + "\n")
}

// names reports whether a line has a name as a word of its own.
func names(line []byte, name string) bool {
	for {
		_, after, found := bytes.Cut(line, []byte(name))
		if !found {
			return false
		}
		if len(after) == 0 || !isDigit(after[0]) {
			return true
		}
		line = after
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
