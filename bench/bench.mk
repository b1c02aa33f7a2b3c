# Macro benchmarks. Included by the top Makefile; every path is relative to the repository.
# bench/README.md says how each figure is made.

BENCH_OUT := bench/out
CC ?= cc

.PHONY: bench-floor bench-node bench-tools bench-compare bench-test

$(BENCH_OUT)/floor: bench/peers/floor/floor.c bench/peers/floor/accept.h
	mkdir -p $(BENCH_OUT)
	$(CC) -std=gnu11 -O2 -Wall -Wextra -o $@ $<

bench-floor: $(BENCH_OUT)/floor ## Build the C relay that gateways are measured against

bench-tools: bench-floor bench-node
	cd bench && go build -o out/ ./cmd/drive ./cmd/compare ./peers/gorilla

# Without npm the Node gateway is skipped, with a word in the report.
bench-node:
	@if ! command -v npm >/dev/null; then echo "no npm: the peer node is left out"; \
	elif ! [ bench/peers/node/node_modules/.package-lock.json -nt bench/peers/node/package-lock.json ]; then \
		npm ci --prefix bench/peers/node --no-audit --no-fund && touch bench/peers/node/node_modules/.package-lock.json; fi

BENCH_ROUNDS ?= 3
MODE         ?= load
RATE         ?= 0,20000
PAYLOAD      ?= 200

bench-compare: build bench-tools ## All peers in turns, about 5 minutes. [BENCH_ROUNDS=3] [MODE=load] [RATE=0,20000] [PAYLOAD=200] [PEERS=a,b] [ARGS=...]
	cd bench && out/compare --mode $(MODE) --rounds $(BENCH_ROUNDS) --rate $(RATE) --payload $(PAYLOAD) --warmup 4s --time 3s \
		$(if $(PEERS),--peers $(PEERS)) $(ARGS)

bench-test:
	cd bench && go vet ./... && go test -race ./...
