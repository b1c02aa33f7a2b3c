# Subway. `make run` and `make test` need Go and make, nothing else.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)
# Runs, not a time: where a time ends, go test may fail with "context deadline exceeded" for no fault (go.dev/issue/75804).
FUZZTIME ?= 60000x
SEEDS    ?= 1000
FIRST    ?= 1

.PHONY: run build build-race test check vet race fuzz sim faults generate clean help

run: build ## build, and run a gateway with ten simulated devices
	bin/subway up

build: ## bin/subway
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/subway ./cmd/subway

build-race: ## bin/subway-race, with the race detector
	$(GO) build -race -ldflags '$(LDFLAGS)' -o bin/subway-race ./cmd/subway

test: ## the tests
	$(GO) test ./...

check: vet race fuzz ## vet, staticcheck, tests with -race, a short fuzz of every target

vet:
	@fmt=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); test -z "$$fmt" || { echo "gofmt: $$fmt"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	cd bench && $(GO) vet ./...

race:
	$(GO) test -race ./...

fuzz: ## FUZZTIME runs of every fuzz target
	@for pkg in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for t in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "fuzz $$pkg $$t $(FUZZTIME)"; \
			$(GO) test -run '^$$' -fuzz "^$$t\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

sim: ## SEEDS simulated worlds around the core, from FIRST on, or that of SEED alone
	$(GO) test ./fuzz/sim -count=1 -v -run '^TestSim$$' $(if $(SEED),-seed=$(SEED),-first=$(FIRST) -seeds=$(SEEDS))

faults: ## real processes under load, killed, paused, cut off, starved: the books must balance. [SEED=n] [SHORT=-short]
	FAULTS=1 $(GO) test -count=1 -timeout 30m -v $(SHORT) ./fuzz/faults

generate: ## the easyjson codecs
	$(GO) generate ./...

clean:
	rm -rf bin bench/out

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

-include bench/bench.mk
-include bench/micro/micro.mk
