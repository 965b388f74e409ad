# Targets whose line ends in a "##" comment are listed by `make help`.
.DEFAULT_GOAL := help
SHELL := /bin/sh

MODULE  := github.com/aether-gateway/gateway
VERSION  = $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT   = $(shell git rev-parse --short=12 HEAD 2>/dev/null)
LDFLAGS  = -s -w -X $(MODULE)/internal/version.version=$(VERSION) -X $(MODULE)/internal/version.commit=$(COMMIT)
LINT     = go tool -modfile=tools/lint.mod golangci-lint
FUZZTIME = 10s

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## Build the gateway and see it at work: dev mode with the demo
	@exec bin/gateway dev --demo

.PHONY: build
build: ## Build bin/gateway: static, with its version stamped
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/gateway ./cmd/gateway

.PHONY: test
test: ## Run all tests with the race detector on real servers (installs what they need)
	@scripts/test.sh

.PHONY: test-short
test-short: ## Run the quick tests: no race detector, no long ones
	@scripts/deps.sh
	@env $$(env | sed -n 's/^\(AETHER_[A-Za-z0-9_]*\)=.*/-u \1/p') go test -short -p 2 ./...

.PHONY: chaos
chaos: ## Break a deployment under load: MINUTES=1.25 SEED=1 GATEWAYS=2 NODES=1 (or 3) ONLY=regexp
	@MINUTES='$(MINUTES)' SEED='$(SEED)' GATEWAYS='$(GATEWAYS)' NODES='$(NODES)' ONLY='$(ONLY)' scripts/chaos.sh

.PHONY: test-rabbitmq4
test-rabbitmq4: ## Test the RabbitMQ driver against RabbitMQ 4, in a Debian 13 chroot (root)
	@scripts/rabbitmq4.sh

.PHONY: check
check: format-check vet lint generate-check tidy-check test ## Everything that a change has to pass

.PHONY: fmt
fmt: ## Format the Go files
	$(LINT) fmt

.PHONY: format-check
format-check:
	@files=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$files" ] || { echo "not formatted: run make fmt"; echo "$$files"; exit 1; }
	$(LINT) fmt --diff

.PHONY: vet
vet:
	go vet ./...

.PHONY: lint
lint: ## Run the linter (its first build takes some minutes)
	$(LINT) run

.PHONY: generate
generate: ## Make gen/ from proto/ (needs Node)
	scripts/generate.sh

.PHONY: generate-check
generate-check: ## See whether gen/ is what proto/ says (needs Node)
	scripts/generate-check.sh

.PHONY: tidy-check
tidy-check:
	go mod tidy -diff
	go mod verify

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME (10s)
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## Measure the gateway against its baselines
	go run ./bench

.PHONY: deps
deps: ## Install what the tests need: C compiler, RabbitMQ, PostgreSQL, Redis, HAProxy, Python with gRPC
	@scripts/deps.sh

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist
