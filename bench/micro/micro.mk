# Micro-benchmarks, the page about the gateway, and the comparison of two revisions. Included by the top Makefile; every path is
# relative to the repository. bench/README.md says how each figure is made.

GO ?= go

.PHONY: bench bench-micro bench-macro bench-diff pgo

bench: bench-micro bench-macro ## Measure the core and the gateway: bench/out/summary.md, under three minutes

bench-micro: ## The micro-benchmarks: bench/out/micro.txt. [BENCH=regexp] [COUNT=3] [BENCHTIME=100ms]
	@GO='$(GO)' bench/micro/micro.sh

bench-macro: build ## The gateway as its own process: bench/out/summary.md, profiles
	@mkdir -p bench/out
	cd bench && $(GO) build -o out/ ./cmd/drive ./cmd/macro
	@cd bench && out/macro --go '$(GO)'

bench-diff: ## The micro-benchmarks of two revisions. BASE=rev [HEAD=rev] [COUNT=10] [BENCH=regexp]
	@GO='$(GO)' BASE='$(BASE)' HEAD='$(HEAD)' bench/micro/diff.sh

pgo: ## Profile the gateway anew for the compiler: cmd/subway/default.pgo, about 90 seconds
	@GO='$(GO)' bench/micro/pgo.sh
