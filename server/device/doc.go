// Package device is the simulated device of `subway device` and `subway up`: it registers
// with a Gateway or an Edge, runs the commands it is sent by doing nothing for a while,
// and answers them (PROTOCOL.md section 3).
//
//	d, err := device.New(device.Options{ID: "td-01", URLs: urls, Behaviour: behaviour})
//	d.Run(ctx)   // until ctx ends; then UNREGISTER and an orderly close
//
// What it makes of a command:
//
//   - SET_X with a `value` keeps the value and answers {"x":value}; GET_STATUS answers with
//     the device's status; everything else answers {"ok":true}.
//   - CANCEL ends a command that waits or runs. It is not answered: the request has its
//     final state by then, and an answer would only count as late.
//   - A requestRef that comes again is not executed again. It gets the answer it had, as
//     long as that is remembered; nothing while the command still runs, or if it was
//     cancelled.
//   - A command for which the queue has no room is answered with ERROR OVERLOADED.
//   - An answer that finds no connection is sent after the next REGISTER_ACK, and so are
//     those given shortly before a connection was lost: nothing says that they arrived, and
//     who has them drops them.
//   - PROGRAM with a `url` and a `sha256` is installed and played, where there is a store.
//
// A device speaks WebSocket, lines of JSON over TCP, or MQTT 5: which, its address says.
package device
