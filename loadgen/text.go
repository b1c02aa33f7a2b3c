package loadgen

import (
	"bytes"
	"math/rand/v2"
	"strconv"

	"subway/loadgen/ledger"
)

// names makes and reads the ids of a run: lg-edge-0007, lg-screen-0000123.
type names struct{ prefix string }

// deviceDigits is the width of a device's number: the last digits of its id.
const deviceDigits = 7

var deviceTypes = [...]string{"screen", "led", "pillar", "tunnel"}

func (n names) appendDevice(dst []byte, number uint32) []byte {
	dst = append(append(dst, n.prefix...), '-')
	dst = append(append(dst, deviceTypes[number%uint32(len(deviceTypes))]...), '-')
	return appendPadded(dst, uint64(number), deviceDigits)
}

func (n names) edge(number int) string {
	return string(appendPadded([]byte(n.prefix+"-edge-"), uint64(number), 5))
}

func (n names) backend(number int) string {
	return string(appendPadded([]byte(n.prefix+"-backend-"), uint64(number), 3))
}

// device reads a device's number; false for an id that is none of ours.
func (n names) device(id []byte) (uint32, bool) {
	at := len(id) - deviceDigits
	if at < 1 || !bytes.HasPrefix(id, []byte(n.prefix)) {
		return 0, false
	}
	v, err := strconv.ParseUint(string(id[at:]), 10, 32)
	return uint32(v), err == nil
}

func appendPadded(dst []byte, v uint64, width int) []byte {
	var b [20]byte
	text := strconv.AppendUint(b[:0], v, 10)
	for range width - len(text) {
		dst = append(dst, '0')
	}
	return append(dst, text...)
}

// texts makes the messages of a run. Each command has a value of its own, cut from one
// random text at a place that its number says, so that whoever meets the command later
// can tell whether its bytes are still those that were sent.
type texts struct {
	noise     []byte
	payload   int
	kind      string // commandType
	timeoutMs int64
	steps     int // progress updates of each command
}

// shifts is how many different values there are.
const shifts = 61

func newTexts(s *Scenario, rng *rand.Rand) *texts {
	t := &texts{payload: s.Load.Payload, kind: s.Load.Type, timeoutMs: s.Load.Timeout.Milliseconds(), steps: s.Devices.Progress}
	t.noise = make([]byte, s.Load.Payload+shifts)
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _"
	for i := range t.noise {
		t.noise[i] = letters[rng.IntN(len(letters))]
	}
	return t
}

func (t *texts) value(seq uint64) []byte {
	at := int(seq % shifts)
	return t.noise[at : at+t.payload]
}

// appendInner appends the `command` of a COMMAND.
func (t *texts) appendInner(dst []byte, seq uint64) []byte {
	dst = append(dst, `{"commandType":`...)
	dst = strconv.AppendQuote(dst, t.kind)
	dst = append(dst, `,"value":"`...)
	dst = append(dst, t.value(seq)...)
	return append(dst, `"}`...)
}

// appendResult appends the `result` of a COMMAND_RESPONSE.
func (t *texts) appendResult(dst []byte, seq uint64) []byte {
	dst = append(dst, `{"value":"`...)
	dst = append(dst, t.value(seq)...)
	return append(dst, `"}`...)
}

// order is a command before it has a text.
type order struct {
	seq      uint64
	ref      []byte
	target   uint32
	priority ledger.Priority
	callback string
}

func priorityWord(p ledger.Priority) string {
	return [...]string{ledger.Low: "LOW", ledger.Normal: "NORMAL", ledger.High: "HIGH"}[p]
}

// appendCommand appends a COMMAND.
func (t *texts) appendCommand(dst []byte, n names, o *order) []byte {
	dst = append(dst, `{"type":"COMMAND","requestRef":"`...)
	dst = append(dst, o.ref...)
	dst = append(dst, `","targetClientId":"`...)
	dst = n.appendDevice(dst, o.target)
	dst = append(dst, `","command":`...)
	dst = t.appendInner(dst, o.seq)
	if o.priority != ledger.Normal {
		dst = append(dst, `,"priority":"`...)
		dst = append(append(dst, priorityWord(o.priority)...), '"')
	}
	dst = append(dst, `,"timeout":`...)
	dst = strconv.AppendInt(dst, t.timeoutMs, 10)
	if o.callback != "" {
		dst = append(dst, `,"callback":`...)
		dst = strconv.AppendQuote(dst, o.callback)
	}
	return append(dst, `,"version":"1.0"}`...)
}

// appendResponse appends a COMMAND_RESPONSE.
func (t *texts) appendResponse(dst, ref []byte, seq uint64, o ledger.Outcome, tookMs int64) []byte {
	dst = append(dst, `{"type":"COMMAND_RESPONSE","requestRef":"`...)
	dst = append(dst, ref...)
	if o == ledger.Completed {
		dst = append(dst, `","status":"COMPLETED","result":`...)
		dst = t.appendResult(dst, seq)
	} else {
		dst = append(dst, `","status":"FAILED","error":{"code":"DEVICE_ERROR","message":"simulated"}`...)
	}
	dst = append(dst, `,"executionTime":`...)
	dst = strconv.AppendInt(dst, tookMs, 10)
	return append(dst, `,"version":"1.0"}`...)
}

// appendProgress appends the PROGRESS_UPDATE of a step, numbered from 0.
func (t *texts) appendProgress(dst, ref []byte, step int) []byte {
	dst = append(dst, `{"type":"PROGRESS_UPDATE","requestRef":"`...)
	dst = append(dst, ref...)
	dst = append(dst, `","progress":`...)
	dst = strconv.AppendFloat(dst, float64(step+1)*100/float64(t.steps+1), 'f', 3, 64)
	return append(dst, `,"stage":"INSTALLING","version":"1.0"}`...)
}

// step reads the step back out of a `progress`; false for one we did not write.
func (t *texts) step(raw []byte) (int, bool) {
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0, false
	}
	step := int(v*float64(t.steps+1)/100+0.5) - 1
	return step, step >= 0 && step < t.steps
}
