#!/usr/bin/env bash
# Writes cmd/subway/default.pgo, which every build of the binary uses: CPU profiles of a gateway under commands over
# WebSocket (closed and open loop), over HTTP and with callbacks, merged.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=bench/out
mkdir -p "$out"
bin=$(mktemp -d) # its path gets into the profile
"$GO" build -pgo=off -trimpath -o "$bin/subway" ./cmd/subway
(cd bench && "$GO" build -o out/ ./cmd/drive)

gateway=
stop() { [ -z "$gateway" ] || { kill "$gateway" && wait "$gateway"; } || true; gateway=; }
trap 'stop; rm -rf "$bin"' EXIT

# profile NAME SECONDS ARGS: a profile of so many seconds of a new gateway while drive sends.
profile() {
	"$bin/subway" gateway --listen 127.0.0.1:18091 --debug-listen 127.0.0.1:18092 2>"$out/pgo.log" &
	gateway=$!
	curl -sf --retry 20 --retry-connrefused --retry-delay 1 -o /dev/null http://127.0.0.1:18091/healthz
	"$out/drive" --addr 127.0.0.1:18091 --pid $gateway --warmup 5s --time "$(($2 + 2))s" "${@:3}" >"$out/pgo-$1.json" &
	local drive=$!
	sleep 6
	curl -sf -o "$out/pgo-$1.pb.gz" "http://127.0.0.1:18092/debug/pprof/profile?seconds=$2"
	wait $drive
	stop
}
profile closed 12
profile open 6 --rate 20000
profile http 6 --mode http
profile callback 6 --mode callback

"$GO" tool pprof -proto "$out"/pgo-*.pb.gz >cmd/subway/default.pgo 2>"$out/pgo.log"
