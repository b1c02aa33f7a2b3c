package wire

import (
	"time"

	"github.com/mailru/easyjson/jlexer"
	"github.com/mailru/easyjson/jwriter"
)

// Time is an instant: nanoseconds since the Unix epoch, from a clock that never
// steps back (which is the caller's business). Zero means "none".
type Time int64

// Millis returns the instant in milliseconds since the Unix epoch, rounded down.
func (t Time) Millis() int64 {
	ms := int64(t) / 1e6
	if int64(t)%1e6 < 0 {
		ms--
	}
	return ms
}

// IsDefined tells easyjson's omitempty whether there is an instant at all.
func (t Time) IsDefined() bool { return t != 0 }

// MarshalEasyJSON writes the instant as PROTOCOL.md's timestamp, in quotes.
func (t Time) MarshalEasyJSON(w *jwriter.Writer) {
	var b [len(timeLayout) + 2]byte
	w.Raw(appendQuotedTime(b[:0], t), nil)
}

// UnmarshalEasyJSON reads an RFC 3339 instant.
func (t *Time) UnmarshalEasyJSON(l *jlexer.Lexer) {
	at, err := time.Parse(time.RFC3339Nano, l.String())
	if err != nil {
		l.AddError(err)
		return
	}
	*t = Time(at.UnixNano())
}

const timeLayout = "2006-01-02T15:04:05.000Z"

// AppendTime appends t as RFC 3339 in UTC with exactly three decimals and
// without quotes: 2024-01-20T10:00:00.000Z (PROTOCOL.md section 3, timestamp).
func AppendTime(dst []byte, t Time) []byte {
	ms := t.Millis()
	days, rest := ms/86_400_000, ms%86_400_000
	if rest < 0 {
		days, rest = days-1, rest+86_400_000
	}
	y, m, d := civil(days)
	ds := int(rest)
	b := [len(timeLayout)]byte{4: '-', 7: '-', 10: 'T', 13: ':', 16: ':', 19: '.', 23: 'Z'}
	two(b[0:2], y/100)
	two(b[2:4], y%100)
	two(b[5:7], m)
	two(b[8:10], d)
	two(b[11:13], ds/3_600_000)
	two(b[14:16], ds/60_000%60)
	two(b[17:19], ds/1000%60)
	b[20] = byte('0' + ds/100%10)
	two(b[21:23], ds%100)
	return append(dst, b[:]...)
}

func appendQuotedTime(dst []byte, t Time) []byte {
	return append(AppendTime(append(dst, '"'), t), '"')
}

func two(b []byte, v int) {
	b[0], b[1] = byte('0'+v/10%10), byte('0'+v%10)
}

// civil converts days since 1970-01-01 to a date in the proleptic Gregorian
// calendar. A Time spans 1677 to 2262, so the year always has four digits.
// The year is reckoned from March so that a leap day comes last.
func civil(days int64) (year, month, day int) {
	z := int(days) + 719_468 // days since 0000-03-01
	era := z / 146_097
	doe := z - era*146_097
	yoe := (doe - doe/1460 + doe/36_524 - doe/146_096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = doy - (153*mp+2)/5 + 1
	month = mp + 3
	year = yoe + era*400
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, day
}
