# Written by `clusterctl release init`, and yours to change. VERSION=vX.Y.Z names the version; without it a build takes
# the tag of the commit.
CLUSTERCTL_RELEASE ?= clusterctl-release

.PHONY: clusterctl-release-build
clusterctl-release-build: ## Build and check the release in out/release
	$(CLUSTERCTL_RELEASE) build $(if $(VERSION),--version "$(VERSION)")

.PHONY: clusterctl-release-publish
clusterctl-release-publish: clusterctl-release-build ## Publish the release to PLACE, a URL or a folder
	$(CLUSTERCTL_RELEASE) publish out/release --to "$(PLACE)"
