// Package mqtt lets devices in that speak MQTT 3.1.1 or 5 (docs/devices.md). It is an
// adapter of the edge: an embedded broker whose only clients are devices and whose only
// topics are theirs.
//
//	subway/{deviceId}/command    edge -> device: COMMAND, CANCEL, ERROR; QoS 1, never retained
//	subway/{deviceId}/response   device -> edge: COMMAND_RESPONSE
//	subway/{deviceId}/progress   device -> edge: PROGRESS_UPDATE
//	subway/{deviceId}/status     device -> edge: DEVICE_STATUS, and the will
//
// A client that connects with a device's id as its client id is that device: the CONNECT
// is its REGISTER, the loss of the connection its end. Commands flow once it has
// subscribed to its command topic. The broker stores nothing: sessions are clean whatever
// a client asks for, since a message kept for it would run a command twice that the edge
// has told to be lost.
//
// What the broker is not trusted with (mochi-mqtt v2.7.9): it sets no deadline before
// CONNECT, publishes wills past its ACL, orders what waits for a receive quota by the
// second, loses count of that quota, leaves a DISCONNECT in its buffer while anything else
// is queued, blocks in a takeover while the old client's socket is full, and may then take
// the new client out of its tables for the old one. So the listener, the wills and the way
// to a device are ours: a goroutine per client writes what the outbox holds, and no message
// goes through the broker's tables.
package mqtt
