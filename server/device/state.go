package device

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"subway/core/wire"
	"subway/server/device/program"
)

// state is what a simulated device can be asked for.
type state struct {
	began    time.Time
	programs *program.Store // nil: none

	mu       sync.Mutex
	commands int               // guarded by mu
	settings map[string][]byte // guarded by mu: JSON values by the name of the setting
}

// apply does what a command asks for and returns its result as JSON. command is the
// `command` of a message that was checked as strict JSON.
func (s *state) apply(commandType string, command []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands++
	if commandType == "GET_STATUS" {
		return s.appendStatusLocked(nil)
	}
	name := setting(commandType)
	value := valueOf(command)
	if name == "" || value == nil || len(value) > maxValue {
		return []byte(`{"ok":true}`)
	}
	if _, known := s.settings[name]; known || len(s.settings) < maxSettings {
		if s.settings == nil {
			s.settings = map[string][]byte{}
		}
		s.settings[name] = value
	}
	result := append(wire.AppendString([]byte{'{'}, name), ':')
	return append(append(result, value...), '}')
}

// appendStatus appends the object that DEVICE_STATUS and GET_STATUS show.
func (s *state) appendStatus(dst []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.appendStatusLocked(dst)
}

func (s *state) appendStatusLocked(dst []byte) []byte {
	dst = append(dst, `{"online":true,"uptimeSeconds":`...)
	dst = strconv.AppendInt(dst, int64(time.Since(s.began)/time.Second), 10)
	dst = append(dst, `,"commands":`...)
	dst = strconv.AppendInt(dst, int64(s.commands), 10)
	if s.programs != nil {
		if p, ok := s.programs.Active(); ok {
			dst = appendProgram(append(dst, `,"program":`...), p)
		}
	}
	dst = append(dst, `,"settings":{`...)
	names := make([]string, 0, len(s.settings))
	for name := range s.settings {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(wire.AppendString(dst, name), ':')
		dst = append(dst, s.settings[name]...)
	}
	return append(dst, `}}`...)
}

// setting names what a command type sets: SET_SCREEN_POWER sets screenPower; "" for
// types that set nothing.
func setting(commandType string) string {
	rest, ok := strings.CutPrefix(commandType, "SET_")
	if !ok || len(rest) > wire.MaxIDBytes {
		return ""
	}
	var name strings.Builder
	for _, word := range strings.Split(strings.ToLower(rest), "_") {
		if name.Len() > 0 && word != "" {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		name.WriteString(word)
	}
	return name.String()
}

// valueOf returns the member `value` of a command as it came, nil if there is none.
func valueOf(command []byte) []byte { return membersOf(command)["value"] }

// membersOf decodes an object. A map keeps names apart by case, which a struct would not.
func membersOf(object []byte) (members map[string]json.RawMessage) {
	if json.Unmarshal(object, &members) != nil {
		return nil
	}
	return members
}
