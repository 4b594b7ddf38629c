# `make help` lists the targets. On a machine with Go, `make demo` and `make test` need no
# preparation: they build the required programs once into bin/.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO   ?= go
ROOT := $(CURDIR)
BIN  := $(ROOT)/bin

# The packages to test, measure and lint, such as `make test PKG=./clusters/...`.
# api is a module of its own, which ./... does not contain; its import path does.
API := github.com/capstan-hub/capstan/api/...
PKG ?= ./... $(API)
# Appended to `go test`, such as `make test PKG=./hub/promotion FLAGS='-run Fork -v'`.
FLAGS ?=
# Appended to the playground, such as `make demo ARGS=--once`.
ARGS ?=

# The race detector needs a C compiler. Without one the tests run without it and print a
# warning.
HAVE_CC := $(shell command -v "$$($(GO) env CC)" >/dev/null 2>&1 && echo yes)
RACE := $(if $(HAVE_CC),-race)
# Without the race detector everything is compiled without cgo, as in the image and in
# hack/compile.sh: kube-apiserver, Capstan, the linter and the benchmarks share the compiled
# packages that they have in common.
export CGO_ENABLED := 0
# Tests, and the API servers and other processes that they start, collect garbage less often: that
# takes a tenth less of CPU. None of them needs more than 2 GiB because of it.
TEST := CGO_ENABLED=$(if $(RACE),1,0) GOGC=400 GOMEMLIMIT=2GiB $(GO) test $(RACE)
# Debuggers need DWARF; stack traces and profiles do not. Compiling takes a tenth less without it.
# To debug, use `go build` and `go test` directly.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -gcflags=all=-dwarf=false)

# Three packages at a time: most of them start a control plane, which needs 280 MB and a core, and
# wait half of their time.
PARALLEL ?= 3
# Parallel tests of one package. Most of them wait for API servers and timers.
PARALLEL_TESTS ?= 4
# For the slowest package on a busy machine of two cores.
TEST_TIMEOUT ?= 60m
# The race detector waits for a second at the end of each test binary, for data races of
# goroutines that outlive it. leaks.Main finds such goroutines where a package starts any.
export GORACE ?= atexit_sleep_ms=20
# The slowest packages start first: a slow package that starts last runs alone and leaves a
# core idle. `make test-times` prints the order.
SLOWEST := ./test/promotions ./hub/dashboard ./hub/annotator ./hub/instancestate ./test/bench ./test/faults ./strategy/pullrequest ./hub/instancestate/queue ./cmd/capstan/cli ./test/install ./hub ./hub/eventing/backend ./hub/eventing/outbox ./test/conformance ./watchers ./clusters
SOAK_TIMEOUT ?= 6h
# The number of random histories of each property test in `make soak`; docs/testing.md has the
# numbers of `make test`.
SOAK_CHECKS ?= 20000

# vet is part of `make lint`.
TESTFLAGS = -vet=off -p $(PARALLEL) -parallel $(PARALLEL_TESTS) -timeout $(TEST_TIMEOUT)

# Without a checkout that git can read (an unpacked archive, another user's checkout in a
# container), Go cannot stamp the commit and the build fails.
BUILDFLAGS := $(shell git -C $(ROOT) rev-parse HEAD >/dev/null 2>&1 || echo -buildvcs=false)

# The user's directory with a control plane, which `controlplane` checks. Tests use the one
# that it puts into bin/envtest.
ASSETS := $(KUBEBUILDER_ASSETS)
override KUBEBUILDER_ASSETS := $(BIN)/envtest
export KUBEBUILDER_ASSETS
# The linter's cache has findings by content, with the paths of the first checkout: two
# checkouts must not share it.
export GOLANGCI_LINT_CACHE := $(BIN)/.lint-cache

##@ Use

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: controlplane crds $(BIN)/playground ## Run a fleet on this machine until Ctrl-C; ARGS=--once runs the story, checks it and exits
	@exec $(BIN)/playground --provide-gitea $(ARGS)

.PHONY: build
build: $(BIN)/capstan $(BIN)/capa-annotator $(BIN)/playground ## Build the binaries into bin/

.PHONY: manifests
manifests: generate controlplane ## Render the manifests for clusters into bin/manifests
	@mkdir -p $(BIN)/manifests
	@for what in default monitoring capa-annotator rbac/workload rbac/self-managed rbac/cluster-secrets rbac/pipeline-secrets rbac/backend-secrets samples; do \
	  out=$(BIN)/manifests/capstan-$$(basename $$what).yaml; \
	  $(BIN)/envtest/kubectl kustomize config/$$what >$$out; \
	  echo "  bin/manifests/$$(basename $$out)"; \
	done

# The hub's image, without a tag: that is the version. The chart and capa-annotator are next to it.
IMAGE ?=
# The directory of archives and releases.
DIST ?= $(ROOT)/dist
# Such as v1.2.3. For an image, what `git describe` prints when empty.
VERSION ?=
PLATFORMS ?= linux/amd64,linux/arm64
CLI_PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64
PACKAGE = cd hack/release && $(GO) run . $(1) -out '$(DIST)' -version '$(VERSION)' -platforms '$(PLATFORMS)'

.PHONY: image
image: ## Write the images as OCI archives into dist/, without a container engine; IMAGE, VERSION, PLATFORMS
	@$(call PACKAGE,image) -image '$(or $(IMAGE),capstan)'

.PHONY: release
release: helm ## Write all files of a release into dist/: images, chart, manifests, CLI; VERSION=v1.2.3, IMAGE=REGISTRY/capstan
	@$(call PACKAGE,all) -image '$(IMAGE)' -cli-platforms '$(CLI_PLATFORMS)' -helm $(BIN)/helm

.PHONY: push
push: ## Push the images and the chart in dist/ to the registries that dist/images.json names
	@cd hack/release && $(GO) run . push -out '$(DIST)'

##@ Develop

.PHONY: test
test: controlplane crds crds-old gitea helm-controller notification-controller helm ## Test everything but test/e2e and test/browser with the race detector; PKG and FLAGS narrow it
	@$(if $(HAVE_CC),,echo "no C compiler: testing WITHOUT the race detector" >&2;) \
	$(TEST) $(TESTFLAGS) $(if $(filter ./...,$(PKG)),$(SLOWEST)) $(PKG) $(FLAGS)
	@$(if $(filter ./...,$(PKG)),$(MAKE) --no-print-directory search)

.PHONY: search
search: ## Search every interleaving of two hubs, up to a depth; part of `make test`, without the race detector
	@$(GO) test -vet=off ./hub/promotion -run TestEveryInterleaving -v -count=1 | { grep -E '(states|FAIL|ok|twice|lost|at the end)' || true; }

.PHONY: test-times
test-times: controlplane crds crds-old gitea helm-controller notification-controller helm ## Run the tests without the test cache and print the slowest packages and tests, as in docs/testing.md
	@mkdir -p $(BIN)
	@status=0; $(TEST) -json -count=1 $(TESTFLAGS) $(if $(filter ./...,$(PKG)),$(SLOWEST)) $(PKG) $(FLAGS) >$(BIN)/test.json || status=$$?; \
	hack/slowest.sh $(BIN)/test.json; exit $$status

.PHONY: e2e
e2e: controlplane crds crds-old gitea helm-controller kustomize-controller source-controller notification-controller helm ## Promote from dev to prod by pull requests, with real Flux and Gitea, while the hub is killed and restarted; run the demo's story with the chart's rights
	@CAPSTAN_E2E=1 $(TEST) -count=1 -v -timeout $(TEST_TIMEOUT) -p 1 ./test/e2e ./test/install $(FLAGS)

.PHONY: goaws
goaws: ## Compare the simulated SQS and its readers with goaws (a separate module)
	@cd test/goaws && $(GO) test -count=1 ./...

.PHONY: release-test
release-test: helm ## Build the image twice and a release for one platform, read them as containerd, Docker and Helm do, and promote with the hub of the image (a separate module)
	@cd hack/release && $(GO) test -vet=off -count=1 -timeout $(TEST_TIMEOUT) ./...

.PHONY: browser
browser: controlplane crds ## Test the dashboard in Chromium; FLAGS='-args -screenshots' renews docs/images
	@hack/browser.sh
	@CAPSTAN_BROWSER=1 $(TEST) -count=1 -timeout $(TEST_TIMEOUT) ./test/browser $(FLAGS)

.PHONY: lint
lint: $(BIN)/golangci-lint $(BIN)/actionlint ## Lint, including the import rules and the workflows
	@$(BIN)/actionlint
	@$(BIN)/golangci-lint run $(filter-out $(API),$(PKG))
	@cd api && $(BIN)/golangci-lint run --config ../.golangci.yml ./...
	@cd hack/release && $(BIN)/golangci-lint run --config ../../.golangci.yml ./...

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## Format the code as lint requires
	@$(BIN)/golangci-lint fmt $(filter-out $(API),$(PKG))

.PHONY: generate
generate: $(BIN)/controller-gen controlplane crds crds-old helm ## Generate deep copies, CRDs (with the chart's copies) and documents
	@$(BIN)/controller-gen object paths=./api/...
	@$(BIN)/controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	@rm -f config/chart/files/crds/*.yaml
	@cp config/crd/bases/*.yaml config/chart/files/crds/
	@cp config/monitoring/dashboard.json config/monitoring/prometheus_rule.yaml config/chart/files/
	@$(GO) generate ./...

.PHONY: bench
bench: controlplane crds crds-old ## Measure the budgets and run all benchmarks, one package at a time: an hour
	@$(GO) test ./test/bench -full -v -count=1 -timeout $(SOAK_TIMEOUT) 2>&1 | { grep -E '^(\||FAIL|---|ok|.*(CPUs|not within))' || true; }
	@$(GO) test -run '^$$' -bench . -benchmem -p 1 -timeout $(SOAK_TIMEOUT) $(PKG) $(FLAGS) | { grep -vE 'no test files|^PASS$$' || true; }

.PHONY: soak
soak: controlplane crds crds-old gitea helm-controller kustomize-controller source-controller notification-controller helm ## Run property tests and tests with a full count, with many repetitions: hours
	@CGO_ENABLED=$(if $(RACE),1,0) hack/soak.sh $(SOAK_CHECKS) $(PKG) -- $(RACE) -timeout $(SOAK_TIMEOUT) $(FLAGS)

.PHONY: clean
clean: ## Remove bin/ and dist/
	rm -rf $(BIN) $(DIST)

##@ Prepare (the targets above do this when needed)

.PHONY: controlplane
controlplane: ## Find kube-apiserver, etcd and kubectl (KUBEBUILDER_ASSETS, setup-envtest), or build them once (minutes)
	@hack/controlplane/provide.sh "$(ASSETS)"

.PHONY: crds
crds: ## Copy the CRDs of other products into bin/crds
	@hack/crds/sync.sh

.PHONY: crds-old
crds-old: ## Put the CRDs of earlier versions of other products, which tests need, into bin/crds
	@hack/crds/sync.sh old

.PHONY: gitea
gitea: ## Use the Gitea that CAPSTAN_GITEA names, a Git provider, or build it once (minutes)
	@hack/gitea/provide.sh

.PHONY: helm-controller
helm-controller: ## Build Flux's helm-controller once (minutes)
	@hack/tool.sh flux github.com/fluxcd/helm-controller

.PHONY: kustomize-controller
kustomize-controller: ## Build Flux's kustomize-controller, which the end-to-end tests of Kustomizations run, once (minutes)
	@hack/tool.sh kustomize github.com/fluxcd/kustomize-controller

.PHONY: source-controller
source-controller: ## Build Flux's source-controller, which the end-to-end tests of Kustomizations run, once (minutes)
	@hack/tool.sh source github.com/fluxcd/source-controller

.PHONY: notification-controller
notification-controller: ## Build Flux's notification-controller, which the tests of Flux Alerts run, once (minutes)
	@hack/tool.sh notification github.com/fluxcd/notification-controller

.PHONY: helm
helm: ## Build Helm, which renders the chart in tests, once (minutes)
	@hack/tool.sh helm helm.sh/helm/v4/cmd/helm

.PHONY: tools
tools: $(BIN)/golangci-lint $(BIN)/actionlint $(BIN)/controller-gen ## Build the linters and the generator

# Go decides what is up to date: these targets always run, and usually do nothing.
.PHONY: $(BIN)/capstan $(BIN)/capa-annotator $(BIN)/playground $(BIN)/golangci-lint $(BIN)/actionlint $(BIN)/controller-gen
$(BIN)/capstan $(BIN)/capa-annotator $(BIN)/playground:
	@echo "  building $(@F)"
	@hack/progress.sh "$(@F): compiling" $(GO) build $(BUILDFLAGS) -o $@ ./cmd/$(@F)

$(BIN)/golangci-lint:
	@hack/tool.sh lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/actionlint:
	@hack/tool.sh actionlint github.com/rhysd/actionlint/cmd/actionlint

$(BIN)/controller-gen:
	@hack/tool.sh tools sigs.k8s.io/controller-tools/cmd/controller-gen
