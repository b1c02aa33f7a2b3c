package wire

import (
	"unicode/utf16"
	"unicode/utf8"
)

// ValidUTF8 reports whether b is valid UTF-8. Scan does not check it: a text
// message that fails closes with 1007, any other is INVALID_MESSAGE.
func ValidUTF8(b []byte) bool {
	return hasAVX2 && len(b) >= 32 && allASCII(&b[0], len(b)) || utf8.Valid(b)
}

// ValidID reports whether b is an id (PROTOCOL.md section 1).
func ValidID(b []byte) bool {
	if len(b) == 0 || len(b) > MaxIDBytes {
		return false
	}
	for _, c := range b {
		if !idBytes[c] {
			return false
		}
	}
	return true
}

var idBytes = func() (t [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-" {
		t[c] = true
	}
	return t
}()

// ValidRef reports whether b is a requestRef (PROTOCOL.md section 3).
func ValidRef(b []byte) bool {
	if len(b) == 0 || len(b) > MaxIDBytes {
		return false
	}
	if len(b) < 8 {
		for _, c := range b {
			if c < 0x21 || c > 0x7e {
				return false
			}
		}
		return true
	}
	for i := 0; i < len(b)-8; i += 8 {
		if !graphic(load(b, i)) {
			return false
		}
	}
	return graphic(load(b, len(b)-8))
}

// graphic reports whether eight bytes are all printable ASCII and no space: from 0x21 to 0x7e.
// A borrow or carry between bytes comes only from one that is not.
func graphic(x uint64) bool {
	return ((x-ones*0x21)|x|(x+ones))&highs == 0
}

// DeviceType returns what stands before the last '-' of a device's id, and
// "unknown" where there is none (PROTOCOL.md section 1). It may alias id.
func DeviceType(id string) string {
	for i := len(id) - 1; i > 0; i-- {
		if id[i] == '-' {
			return id[:i]
		}
	}
	return "unknown"
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case (c|0x20)-'a' <= 5:
			c = (c | 0x20) - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// decode appends the string whose bytes between the quotes are s, which a skip
// function has passed as valid. A lone surrogate becomes U+FFFD.
func decode(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			j := i + 1
			for j < len(s) && s[j] != '\\' {
				j++
			}
			dst, i = append(dst, s[i:j]...), j
			continue
		}
		c := s[i+1]
		if c != 'u' {
			dst, i = append(dst, unescaped(c)), i+2
			continue
		}
		r, _ := hex4(s[i+2:])
		i += 6
		if utf16.IsSurrogate(r) {
			low := rune(-1)
			if i+6 <= len(s) && s[i] == '\\' && s[i+1] == 'u' {
				low, _ = hex4(s[i+2:])
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				i += 6
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c // quote, backslash, slash
}

// decodeShort decodes s if the outcome can be max bytes or fewer; else it
// returns s as it is, which then holds a backslash and is no name or id. So
// the work is bounded however long an attacker's string is.
func decodeShort(tmp, s []byte, max int) []byte {
	if len(s) > 6*max {
		return s
	}
	return decode(tmp[:0], s)
}

// AppendString appends s as a JSON string, with the least escaping that RFC
// 8259 asks for; bytes that are not UTF-8 come out as \ufffd.
func AppendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			n := runeLen(s[i:])
			if n > 0 {
				i += n
				continue
			}
		}
		dst = append(dst, s[start:i]...)
		dst = appendEscape(dst, c)
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// runeLen returns the length of the rune that s begins with, 0 if it is none.
func runeLen[S ~string | ~[]byte](s S) int {
	var b [utf8.UTFMax]byte
	n := copy(b[:], s)
	r, size := utf8.DecodeRune(b[:n])
	if r == utf8.RuneError && size <= 1 {
		return 0
	}
	return size
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	if c >= utf8.RuneSelf {
		return append(dst, `\ufffd`...)
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
