package router

import (
	"strconv"

	"subway/core/wire"
)

// counted counts a refusal, where there is one, among the routing errors.
func (r *Router) counted(f *Refusal) *Refusal {
	if f != nil {
		r.metrics.routingError(f.Code)
	}
	return f
}

// The refusals of a command (PROTOCOL.md section 3, table of ERROR codes).

// RefuseDraining is for every new command once the Gateway is going down.
func RefuseDraining(now wire.Time) *Refusal {
	d := append([]byte(`{"service":"gateway","lastSeen":"`), wire.AppendTime(nil, now)...)
	return &Refusal{Code: wire.CodeGatewayUnavailable, Text: "The Gateway is going down", Details: append(d, `","retryAfter":1}`...)}
}

func refuseDuplicate(rec *record) *Refusal {
	return &Refusal{wire.CodeDuplicateRequest, "The requestRef has been used already", appendStatus(nil, rec.state), rec.mark}
}

func refuseNoRoute(target []byte) *Refusal {
	text := "No route found for device " + string(target)
	d := wire.AppendString([]byte(`{"targetClientId":`), target)
	d = wire.AppendString(append(d, `,"reason":`...), text)
	return &Refusal{Code: wire.CodeTargetNotFound, Text: text, Details: append(d, '}')}
}

func refuseOverloaded(text string) *Refusal {
	return &Refusal{Code: wire.CodeOverloaded, Text: text, Details: appendRetryAfter(nil, 1)}
}

// refuseAway is for a route whose edge is not connected.
func refuseAway(e *edge, now wire.Time) *Refusal {
	d := wire.AppendString([]byte(`{"edgeId":`), e.id)
	d = wire.AppendTime(append(d, `,"lastSeen":"`...), wire.Time(e.seen.Load()))
	d = strconv.AppendInt(append(d, `","retryAfter":`...), 5, 10)
	return &Refusal{Code: wire.CodeEdgeUnavailable, Text: "Edge " + e.id + " is not connected", Details: append(d, '}')}
}

func appendRetryAfter(dst []byte, seconds int) []byte {
	return append(strconv.AppendInt(append(dst, `{"retryAfter":`...), int64(seconds), 10), '}')
}

func appendStatus(dst []byte, s State) []byte {
	return append(append(append(dst, `{"status":"`...), s.String()...), `"}`...)
}

// appendErrorJSON appends {"code","message","details"}, the form of an error in a record
// and a callback.
func appendErrorJSON[C, M ~string | ~[]byte](dst []byte, code C, text M, details []byte) []byte {
	dst = wire.AppendString(append(dst, `{"code":`...), code)
	dst = wire.AppendString(append(dst, `,"message":`...), text)
	if details != nil {
		dst = append(append(dst, `,"details":`...), details...)
	}
	return append(dst, '}')
}
