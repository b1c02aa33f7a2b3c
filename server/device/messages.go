package device

import (
	"strconv"
	"time"

	"subway/core/wire"
	"subway/server/device/program"
)

// The messages of a device (PROTOCOL.md section 3), appended to the caller's slice.

func appendRegister(dst []byte, id string, now wire.Time) []byte {
	dst = append(dst, `{"type":"REGISTER","clientId":`...)
	dst = wire.AppendString(dst, id)
	dst = append(dst, `,"clientType":"DEVICE","deviceInfo":{"model":"simulated"}`...)
	return appendEnd(dst, now)
}

func appendUnregister(dst []byte, id string) []byte {
	dst = append(dst, `{"type":"UNREGISTER","clientId":`...)
	return append(wire.AppendString(dst, id), '}')
}

// appendResponse appends a COMMAND_RESPONSE; body is the result of a command that was
// completed, the error of one that failed.
func appendResponse(dst []byte, ref string, completed bool, body []byte, took time.Duration, now wire.Time) []byte {
	dst = append(dst, `{"type":"COMMAND_RESPONSE","requestRef":`...)
	dst = wire.AppendString(dst, ref)
	if completed {
		dst = append(dst, `,"status":"COMPLETED","result":`...)
	} else {
		dst = append(dst, `,"status":"FAILED","error":`...)
	}
	dst = append(dst, body...)
	dst = append(dst, `,"executionTime":`...)
	dst = strconv.AppendInt(dst, took.Milliseconds(), 10)
	return appendEnd(dst, now)
}

// appendProgress appends a PROGRESS_UPDATE; progress is a number or an object, as JSON.
func appendProgress(dst []byte, ref string, progress []byte, stage string, now wire.Time) []byte {
	dst = append(dst, `{"type":"PROGRESS_UPDATE","requestRef":`...)
	dst = wire.AppendString(dst, ref)
	dst = append(dst, `,"progress":`...)
	dst = append(dst, progress...)
	dst = append(dst, `,"stage":`...)
	dst = wire.AppendString(dst, stage)
	return appendEnd(dst, now)
}

// appendBytes appends how far an installation is.
func appendBytes(dst []byte, p program.Progress) []byte {
	dst = append(dst, `{"bytes":`...)
	dst = strconv.AppendInt(dst, p.Bytes, 10)
	if p.Total > 0 {
		dst = append(dst, `,"total":`...)
		dst = strconv.AppendInt(dst, p.Total, 10)
	}
	return append(dst, '}')
}

func appendProgram(dst []byte, p program.Program) []byte {
	dst = append(dst, `{"sha256":`...)
	dst = wire.AppendString(dst, p.SHA256)
	dst = append(dst, `,"bytes":`...)
	dst = strconv.AppendInt(dst, p.Bytes, 10)
	dst = append(dst, `,"url":`...)
	return append(wire.AppendString(dst, p.URL), '}')
}

func appendDeviceStatus(dst []byte, id string, status []byte, now wire.Time) []byte {
	dst = append(dst, `{"type":"DEVICE_STATUS","clientId":`...)
	dst = wire.AppendString(dst, id)
	dst = append(dst, `,"status":`...)
	dst = append(dst, status...)
	return appendEnd(dst, now)
}

// appendFailure appends the `error` of a command that failed.
func appendFailure(dst []byte, code, message string) []byte {
	dst = append(dst, `{"code":`...)
	dst = wire.AppendString(dst, code)
	dst = append(dst, `,"message":`...)
	return append(wire.AppendString(dst, message), '}')
}

func appendEnd(dst []byte, now wire.Time) []byte {
	dst = append(dst, `,"timestamp":"`...)
	dst = wire.AppendTime(dst, now)
	return append(dst, `","version":"`+wire.Version+`"}`...)
}
