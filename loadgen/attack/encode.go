package attack

import (
	"strconv"

	"subway/core/wire"
)

// appendRequest appends the body of one request: a command, or a batch of them.
func appendRequest(dst []byte, commands []Command) []byte {
	if len(commands) == 1 {
		return appendCommand(dst, &commands[0])
	}
	dst = append(dst, `{"commands":[`...)
	for i := range commands {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendCommand(dst, &commands[i])
	}
	return append(dst, `]}`...)
}

// appendCommand appends the body of POST /api/commands (PROTOCOL.md section 6).
func appendCommand(dst []byte, c *Command) []byte {
	dst = appendText(dst, `{"target_client_id":`, c.Target)
	dst = appendText(dst, `,"command":{"commandType":`, c.Type)
	if len(c.Value) > 0 {
		dst = append(append(dst, `,"value":`...), c.Value...)
	}
	dst = append(dst, '}')
	dst = appendOptional(dst, `,"request_ref":`, c.Ref)
	dst = appendOptional(dst, `,"callback_url":`, c.Callback)
	dst = appendOptional(dst, `,"priority":`, c.Priority)
	if c.TimeoutMs != 0 {
		dst = strconv.AppendInt(append(dst, `,"timeout":`...), c.TimeoutMs, 10)
	}
	dst = appendOptional(dst, `,"when_offline":`, c.WhenOffline)
	return append(dst, '}')
}

func appendText(dst []byte, name, text string) []byte {
	return wire.AppendString(append(dst, name...), text)
}

func appendOptional(dst []byte, name, text string) []byte {
	if text == "" {
		return dst
	}
	return appendText(dst, name, text)
}
