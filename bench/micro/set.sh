# The micro-benchmarks: which they are, and how their test binaries are made and run. Sourced by micro.sh and diff.sh.
# Paths are relative to a tree (the repository or a worktree of it). Needs GO, BENCH and BENCHTIME, each may be empty.

# packages that hold them.
packages="core/router core/wire server/front"

# pattern PACKAGE prints which benchmarks of a package count. A level of sub-benchmarks stands after each slash; `ours` leaves
# out the tables that ours was chosen over, and Command is filled with a million for one kind of edge only: that takes seconds.
pattern() {
	case $1 in
	core/router) echo '^BenchmarkRoute(Find|AddRemove)$/^ours$|^Benchmark(Pending|Wheel|Snapshot)$|^BenchmarkCommand$/^dedupe$|^BenchmarkCommand$/^plain$/^1000$' ;;
	core/wire) echo '^Benchmark(Scan|Command|Forward|HTTPCommand|AppendTime)$' ;;
	server/front) echo '^BenchmarkReader$' ;;
	esac
}

# compile TREE DIR makes DIR/PACKAGE.test of each package that TREE has. -trimpath: the same code in two trees is the same
# binary, to the byte.
compile() {
	mkdir -p "$2"
	for package in $packages; do
		if [ -d "$1/$package" ]; then
			(cd "$1" && "${GO:-go}" test -c -trimpath -o "$2/$(binary "$package")" "./$package")
		else
			echo "no $package in $1: left out" >&2
		fi
	done
}

binary() { echo "$1.test" | tr / -; }

# measure TREE DIR PACKAGE runs the benchmarks of one package once and prints them.
measure() {
	[ -f "$2/$(binary "$3")" ] || return 0
	(cd "$1/$3" && "$2/$(binary "$3")" -test.run '^$' -test.bench "${BENCH:-$(pattern "$3")}" -test.benchmem \
		-test.benchtime "${BENCHTIME:-100ms}" -test.timeout 10m)
}

# counted NAME VALUE ends the script unless VALUE is a number from 1 to 999.
counted() {
	case $2 in
	'' | 0* | *[!0-9]* | ????*) echo "$1 must be a number from 1 to 999, not \"$2\"" >&2 && exit 2 ;;
	esac
}
