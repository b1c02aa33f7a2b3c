#!/bin/sh
# Runs the micro-benchmarks of this tree COUNT times (3) and writes them to OUT (bench/out/micro.txt), as benchstat reads them.
#	[COUNT=n] [BENCH=regexp] [BENCHTIME=100ms] bench/micro/micro.sh [OUT]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/set.sh"
out=${1:-$root/bench/out/micro.txt}
count=${COUNT:-3}
counted COUNT "$count"
mkdir -p "$root/bench/out"
work=$(mktemp -d "$root/bench/out/micro.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

compile "$root" "$work"
echo "# revision $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown), $(date -u +%Y-%m-%dT%H:%M:%SZ)" >"$work/micro.txt"
for i in $(seq "$count"); do
	echo "micro-benchmarks, round $i of $count" >&2
	for package in $packages; do
		measure "$root" "$work" "$package" >>"$work/micro.txt"
	done
done
mv "$work/micro.txt" "$out"
