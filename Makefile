# `make release` and `make test` do all of their own set-up: they need Go, git, make and bash.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The version to release: the newest series of the provider's metadata.yaml, patch 0.
VERSION ?= $(shell awk '$$2 == "major:" {major = $$3} $$1 == "minor:" {if (major > M || (major == M && $$2 >= m)) {M = major; m = $$2}} END {print "v" M "." m ".0"}' provider/metadata.yaml)
OUT := out
# One way to compile for programs, tests and lint, which doesn't depend on the folder of the checkout: Go's cache then
# compiles each package once, also for a fresh clone.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath
# How long an API server may take to start: the default of 20 s is too short while other tests are compiled.
export KUBEBUILDER_CONTROLPLANE_START_TIMEOUT ?= 2m
TOOL := hack/tools/tool
LDFLAGS := -s -w -X main.version=$(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-dev)

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: generate
generate: ## Regenerate the generated files: the API's code, CRDs, RBAC, webhooks, the release file's schema, the reference in docs
	go generate ./pkg/...
	hack/generate-provider
	go run ./hack/reference docs/reference $(VERSION)
	rm -rf docs/reference/commands
	go run ./cmd/clusterctl-release man --markdown docs/reference/commands

.PHONY: build
build: ## Build the tool and the provider's manager into bin/
	go build -ldflags '$(LDFLAGS)' -o bin/clusterctl-release ./cmd/clusterctl-release
	go build -ldflags '-s -w' -o bin/manager ./provider

# The repository of the images. The release's images are in it only after `make push`.
IMAGE_REPO ?= ghcr.io/clusterctl-release
IMAGE_PLATFORMS ?= linux/amd64,linux/arm64
MANAGER_IMAGE := cluster-api-provider-libvirt
TOOL_IMAGE := clusterctl-release
build-image = go run ./hack/image -version $(VERSION) -platforms $(IMAGE_PLATFORMS) build $(OUT)/images

.PHONY: release
release: ## Build the provider's release into out/release and its image into out/images, and publish it to the local repository out/repository
	go build -ldflags '$(LDFLAGS)' -o bin/clusterctl-release ./cmd/clusterctl-release
	bin/clusterctl-release metadata check
	image=$$($(build-image) $(MANAGER_IMAGE)); \
	bin/clusterctl-release build --version $(VERSION) --output $(OUT)/release --image ghcr.io/clusterctl-release/$(MANAGER_IMAGE)=$(IMAGE_REPO)/$(MANAGER_IMAGE):$$image
	bin/clusterctl-release check $(OUT)/release/infrastructure-libvirt/$(VERSION) --fail-on warning
	bin/clusterctl-release publish $(OUT)/release/infrastructure-libvirt/$(VERSION) --to $(OUT)/repository

# PREVIOUS is the previous release: the folder of a version, or the URL of a provider.
.PHONY: changelog
changelog: release ## Write the changes since PREVIOUS=<release> into docs/reference/changelog.md
	hack/changelog bin/clusterctl-release "$(PREVIOUS)" $(OUT)/release/infrastructure-libvirt/$(VERSION) docs/reference/changelog.md

.PHONY: stable
stable: ## Write the list of what docs/reference/stability.md promises, for a release
	UPDATE_GOLDEN=1 go test ./cmd/clusterctl-release -run '^TestStable$$' -count=1

.PHONY: push
push: release ## Build the tool's image too, and push both images to IMAGE_REPO
	$(build-image) $(TOOL_IMAGE)
	go run ./hack/image -registry $(IMAGE_REPO) push $(OUT)/images $(MANAGER_IMAGE) $(TOOL_IMAGE)

# SIGN_KEY=FILE signs the provenance with a private key.
DIST_PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64
.PHONY: dist
dist: ## Make the downloads of the tool in out/dist: archives, Debian packages, checksums, and more
	go test ./cmd/clusterctl-release -run '^TestStable$$' -count=1 -args -stable.complete
	go run ./hack/dist -version $(VERSION) -commit "$$(git describe --always --abbrev=40 --exclude='*' --dirty 2>/dev/null || true)" -epoch "$$(git log -1 --format=%ct 2>/dev/null || echo 0)" -platforms $(DIST_PLATFORMS) -sign-key "$(SIGN_KEY)" $(OUT)/dist

.PHONY: clean-machine
clean-machine: ## Install the tool on a clean Debian in each way, without a network, and run it as clusterctl's plugin
	go test ./hack/dist -run 'TestCleanMachine|TestForeignPrograms' -count=1 -v -timeout 60m -clean-machine

# provider/test is the first: it takes the longest. It and hack/testbed wait most of the time, so that a third package
# runs concurrently on two processors.
# The cluster with real nodes follows alone: kubeadm doesn't wait long for an emulated processor.
.PHONY: test
test: verify testbed ## Run all checks and tests; their tools are built once and kept in a cache
	KUBEBUILDER_ASSETS=$$(hack/tools/envtest) go test -p 3 -timeout 40m ./provider/test ./...
	$(run-specs) -short -timeout 40m -ginkgo.label-filter quick-start

.PHONY: testbed
testbed: ## Build and install the parts of the testbed: a management cluster of processes, and libvirt hosts
	hack/tools/libvirt
	go run ./hack/testbed build

.PHONY: tutorial
tutorial: testbed ## Run the commands of the tutorial about two KVM hosts on hosts of a testbed
	$(TOOL) kubernetes-v1.36.3/kubectl
	go test ./provider/test -run TestTutorial -count=1 -v -timeout 60m -tutorial

.PHONY: testbed-up
testbed-up: ## Start a management cluster with the provider and three libvirt hosts, to try things out
	hack/tools/libvirt
	go build -o bin/testbed ./hack/testbed
	bin/testbed up

.PHONY: testbed-down
testbed-down: ## Remove the testbed
	go build -o bin/testbed ./hack/testbed
	bin/testbed down

# KUBERNETES is a version that a module in hack/tools pins.
KUBERNETES ?= v1.36.3
.PHONY: node-image
node-image: ## Build a disk image of a Kubernetes node, and print its path: KUBERNETES=v1.36.3
	go run ./hack/nodeimage -kubernetes $(KUBERNETES)

.PHONY: book
book: ## Build a book of the pages in docs that needs no network: out/book/index.html
	go run ./hack/book "$$($(TOOL) hugo)" $(OUT)/book

.PHONY: book-test
book-test: book ## Open the book's pages in Chromium, as wide as a phone and as a desktop
	hack/tools/chromium
	cd hack/book/browser && go test -count=1 -v .

.PHONY: pictures
pictures: book ## Take the pictures in docs/pictures: of the report, the graph and the book
	hack/tools/chromium
	cd hack/book/browser && go test -count=1 -run TestPictures . -args -pictures=../../../docs/pictures

run-specs = cd provider/e2e && go test -tags e2e . -e2e.artifacts=$(abspath $(OUT)/e2e)

# SPEC chooses the specs by their labels, E2E_KEEP=1 leaves the cluster of the last one up, and FAULTS=SEED causes faults.
SPEC ?= quick-start
.PHONY: e2e
e2e: ## Run Cluster API's end-to-end specs with real nodes: SPEC=quick-start, E2E_KEEP=1, FAULTS=1; takes an hour, and longer the first time
	hack/tools/libvirt
	$(run-specs) -count=1 -v -timeout 0 -ginkgo.v -ginkgo.timeout 12h -ginkgo.label-filter '$(SPEC)' $(if $(E2E_KEEP),-e2e.keep) $(if $(FAULTS),-e2e.faults=$(FAULTS))

.PHONY: verify
verify: ## Check lint, generated files and go.mod
	$$($(TOOL) golangci-lint) run ./...
	$$($(TOOL) golangci-lint) fmt --diff provider/e2e
	go -C provider/e2e vet -tags e2e ./...
	hack/verify-generated
	go mod tidy -diff
	go -C provider/e2e mod tidy -diff

.PHONY: race
race: ## Run the tests with the race detector, without those of the testbed
	CGO_ENABLED=1 KUBEBUILDER_ASSETS=$$(hack/tools/envtest) go test -race -timeout 90m ./pkg/... ./provider/internal/...

.PHONY: mutants
mutants: ## Add each check's defects to the provider's release, and print which checks report them
	go test ./pkg/checks -run TestMutants -count=1 -v -mutants

.PHONY: gitea
gitea: ## Build a real Gitea and publish to its packages and its registry, with all faults
	go test ./pkg/publish -run 'TestRealGitea' -count=1 -v -timeout 60m -publish.gitea=$$($(TOOL) gitea) -publish.gitea-files=$$(cd hack/tools/gitea && go list -m -f '{{.Dir}}' code.gitea.io/gitea)

.PHONY: bench
bench: ## Measure builds, publications, checks and move plans against kustomize and clusterctl, and the provider with many machines and pools
	go run ./hack/bench

# SOAK is the duration of the faults, and SEED their seed: 0 chooses one at random and prints it.
SOAK ?= 30m
SEED ?= 0
.PHONY: soak
soak: ## Cause random faults of machines and hosts for SOAK=30m, and compare the hosts with the API
	KUBEBUILDER_ASSETS=$$(hack/tools/envtest) go test ./provider/internal/testing/soak -run TestSoak -count=1 -v -timeout 0 -soak.duration=$(SOAK) -soak.seed=$(SEED)

.PHONY: clean
clean: ## Remove what was built; the cache of tools stays
	if [ -x bin/testbed ]; then bin/testbed down; fi
	rm -rf bin $(OUT)
