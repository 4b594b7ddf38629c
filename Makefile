# `make help` lists the targets. Two commands do everything on a machine with Go:
# `make demo` and `make test`. What they need is built once into bin/.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO   ?= go
ROOT := $(CURDIR)
BIN  := $(ROOT)/bin

# What tests, benchmarks and linters look at; such as `make test PKG=./clusters/...`.
# api is a module of its own, which ./... does not contain; its import path does.
API := github.com/capstan-hub/capstan/api/...
PKG ?= ./... $(API)
# Appended to `go test`; such as `make test PKG=./hub/promotion FLAGS='-run Fork -v'`.
FLAGS ?=
# Appended to the playground; such as `make demo ARGS=--once`.
ARGS ?=

# The race detector needs a C compiler; without one the tests run, and say so.
HAVE_CC := $(shell command -v "$$($(GO) env CC)" >/dev/null 2>&1 && echo yes)
RACE := $(if $(HAVE_CC),-race)

# Two packages at a time: most of them start a control plane, of 280 MB and a core.
PARALLEL ?= 2
# Parallel tests of one package. Most of them wait for API servers and timers.
PARALLEL_TESTS ?= 4
# For the slowest package on a busy machine of two cores.
TEST_TIMEOUT ?= 15m
# The packages whose tests take longest begin first: a long one that begins last has the
# machine to itself. `make test-times` prints the order.
SLOWEST := ./test/promotions ./hub/annotator ./hub/instancestate ./strategy/pullrequest ./test/faults ./hub/eventing/outbox ./test/conformance ./playground/fleet ./hub ./clusters ./watchers ./hub/dashboard ./cmd/capstan/cli
SOAK_TIMEOUT ?= 6h
# Random histories that each property test tries in `make soak`; docs/testing.md has the
# counts of `make test`.
SOAK_CHECKS ?= 20000

# vet is part of `make lint`.
TESTFLAGS = -vet=off -p $(PARALLEL) -parallel $(PARALLEL_TESTS) -timeout $(TEST_TIMEOUT)

# Outside a checkout that git can read (an unpacked archive, another user's
# checkout in a container) Go cannot stamp the commit and would refuse to build.
BUILDFLAGS := $(shell git -C $(ROOT) rev-parse HEAD >/dev/null 2>&1 || echo -buildvcs=false)

# The user's directory with a control plane, which `controlplane` checks. Tests find what it
# chose in bin/envtest.
ASSETS := $(KUBEBUILDER_ASSETS)
override KUBEBUILDER_ASSETS := $(BIN)/envtest
export KUBEBUILDER_ASSETS
# The linter's findings are kept by content, with the paths of the first checkout that
# had it: two checkouts must not share them.
export GOLANGCI_LINT_CACHE := $(BIN)/.lint-cache

##@ Use

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: controlplane crds $(BIN)/playground ## Run a fleet on this machine until Ctrl-C; ARGS=--once plays the story, checks it and ends
	@exec $(BIN)/playground --provide-gitea $(ARGS)

.PHONY: build
build: $(BIN)/capstan $(BIN)/capa-annotator $(BIN)/playground ## Build the binaries into bin/

.PHONY: manifests
manifests: generate controlplane ## Render what is to be applied to clusters into bin/manifests
	@mkdir -p $(BIN)/manifests
	@for what in default monitoring capa-annotator rbac/workload rbac/self-managed rbac/cluster-secrets rbac/pipeline-secrets rbac/backend-secrets samples; do \
	  out=$(BIN)/manifests/capstan-$$(basename $$what).yaml; \
	  $(BIN)/envtest/kubectl kustomize config/$$what >$$out; \
	  echo "  bin/manifests/$$(basename $$out)"; \
	done

##@ Develop

.PHONY: test
test: controlplane crds gitea helm-controller helm ## Test everything but test/e2e and test/browser with the race detector; PKG and FLAGS narrow it
	@$(if $(HAVE_CC),,echo "no C compiler: testing WITHOUT the race detector" >&2;) \
	$(GO) test $(RACE) $(TESTFLAGS) $(if $(filter ./...,$(PKG)),$(SLOWEST)) $(PKG) $(FLAGS)

.PHONY: test-times
test-times: controlplane crds gitea helm-controller helm ## Run the tests afresh and print the slowest packages and tests, as in docs/testing.md
	@mkdir -p $(BIN)
	@status=0; $(GO) test -json $(RACE) -count=1 $(TESTFLAGS) $(if $(filter ./...,$(PKG)),$(SLOWEST)) $(PKG) $(FLAGS) >$(BIN)/test.json || status=$$?; \
	hack/slowest.sh $(BIN)/test.json; exit $$status

.PHONY: e2e
e2e: controlplane crds gitea helm-controller helm ## Promote from dev to prod by pull requests, with real Flux and Gitea, and with the hub killed on the way; the demo's story with the chart's rights
	@CAPSTAN_E2E=1 $(GO) test $(RACE) -count=1 -v -timeout $(TEST_TIMEOUT) -p 1 ./test/e2e ./test/install $(FLAGS)

.PHONY: goaws
goaws: ## Hold the simulated SQS, and what reads it, against goaws: in a module of its own
	@cd test/goaws && $(GO) test -count=1 ./...

.PHONY: browser
browser: controlplane crds ## Test the dashboard in Chromium; FLAGS='-args -screenshots' renews docs/images
	@hack/browser.sh
	@CAPSTAN_BROWSER=1 $(GO) test $(RACE) -count=1 -timeout $(TEST_TIMEOUT) ./test/browser $(FLAGS)

.PHONY: lint
lint: $(BIN)/golangci-lint ## Lint, walls between packages included
	@$(BIN)/golangci-lint run $(filter-out $(API),$(PKG))
	@cd api && $(BIN)/golangci-lint run --config ../.golangci.yml ./...

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## Format as lint wants it
	@$(BIN)/golangci-lint fmt $(filter-out $(API),$(PKG))

.PHONY: generate
generate: $(BIN)/controller-gen controlplane crds ## Generate deep copies, CRDs (with the chart's copies) and documents
	@$(BIN)/controller-gen object paths=./api/...
	@$(BIN)/controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	@rm -f config/chart/files/crds/*.yaml
	@cp config/crd/bases/*.yaml config/chart/files/crds/
	@cp config/monitoring/dashboard.json config/monitoring/prometheus_rule.yaml config/chart/files/
	@$(GO) generate ./...

.PHONY: bench
bench: controlplane crds ## Measure against the budgets, and every benchmark, one package at a time: half an hour
	@$(GO) test ./test/bench -full -v -count=1 -timeout $(SOAK_TIMEOUT) 2>&1 | { grep -E '^(\||FAIL|---|ok|.*(CPUs|not within))' || true; }
	@$(GO) test -run '^$$' -bench . -benchmem -p 1 -timeout $(SOAK_TIMEOUT) $(PKG) $(FLAGS) | { grep -vE 'no test files|^PASS$$' || true; }

.PHONY: soak
soak: controlplane crds gitea helm-controller helm ## The tests that have a full count, with it: hours
	@hack/soak.sh $(SOAK_CHECKS) $(PKG) -- $(RACE) -timeout $(SOAK_TIMEOUT) $(FLAGS)

.PHONY: clean
clean: ## Remove bin/
	rm -rf $(BIN)

##@ Prepare (the targets above do so when needed)

.PHONY: controlplane
controlplane: ## Find kube-apiserver, etcd and kubectl (KUBEBUILDER_ASSETS, setup-envtest), or build them: minutes, once
	@hack/controlplane/provide.sh "$(ASSETS)"

.PHONY: crds
crds: ## Lay out the CRDs of other products
	@hack/crds/sync.sh

.PHONY: gitea
gitea: ## Use the Gitea that CAPSTAN_GITEA names, a Git provider, or build it: minutes, once
	@hack/gitea/provide.sh

.PHONY: helm-controller
helm-controller: ## Build Flux's helm-controller: minutes, once
	@hack/tool.sh flux github.com/fluxcd/helm-controller

.PHONY: helm
helm: ## Build Helm, which renders the chart in tests: minutes, once
	@hack/tool.sh helm helm.sh/helm/v4/cmd/helm

.PHONY: tools
tools: $(BIN)/golangci-lint $(BIN)/controller-gen ## Build the linter and the generator

# Go knows best what is up to date: these are always asked and seldom do anything.
.PHONY: $(BIN)/capstan $(BIN)/capa-annotator $(BIN)/playground $(BIN)/golangci-lint $(BIN)/controller-gen
$(BIN)/capstan $(BIN)/capa-annotator $(BIN)/playground:
	@echo "  building $(@F)"
	@hack/progress.sh "$(@F): compiling" $(GO) build $(BUILDFLAGS) -o $@ ./cmd/$(@F)

$(BIN)/golangci-lint:
	@hack/tool.sh lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/controller-gen:
	@hack/tool.sh tools sigs.k8s.io/controller-tools/cmd/controller-gen
