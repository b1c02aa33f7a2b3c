#!/bin/sh
# Compares the micro-benchmarks of two revisions with benchstat:
#	BASE=rev [HEAD=rev] [COUNT=10] [BENCH=regexp] [BENCHTIME=100ms] bench/micro/diff.sh
# Without HEAD the working tree as it is. Both are compiled first and then run in turns (A B A B), so that what the machine does
# to one it does to both. Writes diff.txt and the runs it is from, diff-base.txt and diff-head.txt, to the directory OUT (bench/out).
# Its worktrees are in a directory of its own there and go with it, also after an error or Ctrl-C.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/set.sh"
out=${OUT:-$root/bench/out}
count=${COUNT:-10}
counted COUNT "$count"

fail() {
	echo "bench-diff: $*" >&2
	exit 2
}

# commit REV prints its short hash.
commit() {
	git -C "$root" rev-parse --verify --quiet --short --end-of-options "$1^{commit}" || fail "no revision \"$1\""
}

cleanup() {
	trap '' INT TERM HUP
	for side in base head; do
		[ -d "$work/$side" ] || continue
		git -C "$root" worktree remove --force "$work/$side" || { rm -rf "$work/$side" && git -C "$root" worktree prune; }
	done
	rm -rf "$work"
}

[ -n "${BASE:-}" ] || fail "say which: make bench-diff BASE=rev [HEAD=rev] [COUNT=10] [BENCH=regexp]"
git -C "$root" rev-parse --git-dir >/dev/null || fail "$root is no git repository"
base=$(commit "$BASE")
head=working-tree
[ -z "${HEAD:-}" ] || head=$(commit "$HEAD")
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "$out/diff.XXXXXX")
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

git -C "$root" worktree add --quiet --detach "$work/base" "$base"
headtree=$root
if [ "$head" != working-tree ]; then
	headtree=$work/head
	git -C "$root" worktree add --quiet --detach "$headtree" "$head"
fi
compile "$work/base" "$work/base-bin"
compile "$headtree" "$work/head-bin"
for i in $(seq "$count"); do
	echo "bench-diff: round $i of $count" >&2
	for package in $packages; do
		measure "$work/base" "$work/base-bin" "$package" >>"$work/diff-base.txt"
		measure "$headtree" "$work/head-bin" "$package" >>"$work/diff-head.txt"
	done
done
grep -q '^Benchmark' "$work/diff-base.txt" "$work/diff-head.txt" || fail "no benchmark matches \"${BENCH:-}\""
mv "$work/diff-base.txt" "$work/diff-head.txt" "$out/"
cd "$root/bench"
"${GO:-go}" tool benchstat "base:$base=$out/diff-base.txt" "head:$head=$out/diff-head.txt" >"$work/diff.txt"
mv "$work/diff.txt" "$out/diff.txt"
cat "$out/diff.txt"
