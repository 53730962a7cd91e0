# `make` shows the targets.

GO         ?= go
FUZZTIME   ?= 10s
SOAKTIME   ?= 2m
RESTARTS   ?= 50
KEYS       ?= 1000000
KEYED      ?= 200
OUTAGE     ?= 10
UPLOAD     ?= 5
ROLLS      ?= 20
IDLE       ?= 15000
FLOOD      ?= 3000
GOLANGCI   := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULN     := golang.org/x/vuln/cmd/govulncheck@v1.9.0
GOFMT       = "$$($(GO) env GOROOT)/bin/gofmt"

.DEFAULT_GOAL := help
.PHONY: help build test peers fmt vet race lint vuln bench fuzz soak mutants

help: ## show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

build: ## build ./fenceproxy
	$(GO) build -o fenceproxy ./cmd/fenceproxy

# The last thing in it is go test, whose summary and exit code are those of the target.
test: fmt vet peers ## format, vet, and all tests with the race detector
	$(GO) test -race -count=1 -timeout 20m ./...

peers: ## install and build the programs of others that tests use; FENCEPROXY_PEERS=none does without
	.ci/peers

fmt: ## fail if a file is not as gofmt writes it
	@files=$$($(GOFMT) -l .) || exit 1; if [ -n "$$files" ]; then echo "not as gofmt writes it:"; echo "$$files"; exit 1; fi

vet: ## go vet
	$(GO) vet ./...

race: ## the black-box tests with a race-checked program, uncached
	FENCEPROXY_TEST_BUILDFLAGS=-race $(GO) test -race -count=1 -timeout 30m ./e2e/...

lint: ## golangci-lint, as .golangci.yml says
	$(GO) run $(GOLANGCI) run ./...

vuln: ## known vulnerabilities in what is called; needs the network
	$(GO) run $(GOVULN) ./...

bench: ## the figures, each beside something to compare with; four minutes
	$(GO) run ./bench

fuzz: ## every fuzz target, FUZZTIME each
	@grep -rno --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | while IFS=: read -r file _ name; do \
		echo "$$file $${name#func }"; \
		$(GO) test -run '^$$' -fuzz "^$${name#func }\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null || exit 1; \
	done

soak: ## kill the proxy RESTARTS times under load, KEYED times under one key; take it away from workers for OUTAGE seconds; replace it ROLLS times under load; pass bodies of UPLOAD GiB; keep IDLE connections; stand floods of FLOOD; purge KEYS keys; fuzz for SOAKTIME each
	FENCEPROXY_SOAK_RESTARTS=$(RESTARTS) FENCEPROXY_SOAK_KEYED=$(KEYED) $(GO) test -count=1 -timeout 60m -v \
		-run 'TestKillingTheProxyUnderLoad|TestAKeyIsExecutedAtMostOnce' ./e2e
	FENCEPROXY_SOAK_ROLLS=$(ROLLS) $(GO) test -count=1 -timeout 30m -v -run 'TestARollingRestart' ./e2e
	FENCEPROXY_SOAK_OUTAGE=$(OUTAGE) $(GO) test -count=1 -timeout 10m -v \
		-run 'TestWorkerKeepsItsGenerationWhenTheProxyIsDown|TestWorkerIsStoppedInTimeWhenTheProxyIsDown' ./e2e
	FENCEPROXY_SOAK_UPLOAD_GIB=$(UPLOAD) $(GO) test -count=1 -timeout 60m -v -run 'TestLargeBodies|TestALargeUpload' ./e2e
	FENCEPROXY_SOAK_IDLE=$(IDLE) FENCEPROXY_SOAK_FLOOD=$(FLOOD) $(GO) test -count=1 -timeout 30m -v -parallel 1 -run 'TestIdleConnections|Flood|LeaveNothingBehind' ./e2e
	FENCEPROXY_SOAK_KEYS=$(KEYS) $(GO) test -count=1 -timeout 30m -v -run 'TestAPurgeGivesItsSpaceBack' ./tokens/badgerstore
	$(MAKE) fuzz FUZZTIME=$(SOAKTIME)

mutants: ## take one safeguard away at a time: a test has to fail
	FENCEPROXY_MUTANTS=1 $(GO) test -count=1 -timeout 60m ./e2e/mutants/... ./tokens/tokenstest/... ./tokens/model/...
