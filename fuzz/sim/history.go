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

// excerpt returns the last lines that name one of the subjects, and the last of all.
func (h *history) excerpt(subjects ...string) string {
	subjects = slices.DeleteFunc(subjects, func(s string) bool { return s == "" })
	var about, last []string
	from := 0
	for i, end := range h.ends {
		line := h.text[from:end]
		from = end
		if names(line, subjects) {
			about = append(about, string(line))
		} else if i >= len(h.ends)-mostLast {
			last = append(last, string(line))
		}
	}
	if n := len(about); n > mostAbout {
		about = append([]string{fmt.Sprintf("... %d lines before", n-mostAbout)}, about[n-mostAbout:]...)
	}
	return fmt.Sprintf("-- about %s\n%s\n-- and last\n%s\n", strings.Join(subjects, ", "), strings.Join(about, "\n"), strings.Join(last, "\n"))
}

// names reports whether a line has one of the subjects as a word of its own.
func names(line []byte, subjects []string) bool {
	for _, s := range subjects {
		for rest := line; ; {
			_, after, found := bytes.Cut(rest, []byte(s))
			if !found {
				break
			}
			if len(after) == 0 || !isDigit(after[0]) {
				return true
			}
			rest = after
		}
	}
	return false
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
