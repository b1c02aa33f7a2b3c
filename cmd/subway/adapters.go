package main

import (
	"subway/server/edge/line"
	"subway/server/edge/local"
	"subway/server/edge/mqtt"
)

// What `subway edge --adapter NAME=ADDRESS` knows; one more is one more line, or one more
// file with an init function (docs/devices.md).
func init() {
	local.Register("mqtt", mqtt.New)
	local.Register("line", line.New)
}
