# Everything weir needs is installed by these targets; see README.md.

GO            ?= go
FUZZTIME      ?= 10s
SEED          ?=
GOLANGCI      := v2.15.0
GOVULNCHECK   := v1.1.4
TOOLS         := $(CURDIR)/bin/tools

.PHONY: help run test vet unit fuzz simulate lint vuln redis build torture bench clean cc

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

run: build ## show weir working: everything embedded, with a fake paid api
	bin/weir demo $(DEMO)

test: vet lint unit fuzz vuln ## pass every check: what CI runs

build: ## build bin/weir
	$(GO) build -trimpath -o bin/weir ./cmd/weir

CHECKOUT = @git rev-parse -q --git-dir >/dev/null 2>&1 || { echo "$@ needs a git checkout: it asks git for the files"; exit 1; }

vet:
	$(CHECKOUT)
	$(GO) vet ./... && $(GO) vet -tags torture ./bucket/fault
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt would change:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) mod tidy -diff

unit: redis cc ## run the tests with the race detector
	$(GO) test -race -p 1 -parallel 4 -timeout 40m ./... # what runs in parallel mostly waits
	$(GO) test -run Simulation -timeout 25m ./dispatcher # all seeds: with the race detector only some are run

SEEDS ?= 100000

simulate: ## run more seeds through the schedule in virtual time: SEED=first SEEDS=how many of each
	$(GO) test ./dispatcher -run Simulation -timeout 24h -args -seed $(or $(SEED),0) -seeds $(SEEDS)

fuzz: ## run every fuzz target briefly
	$(CHECKOUT)
	@for f in $$(git grep -l '^func Fuzz' -- '*_test.go'); do \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$f); do \
	    $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x ./$$(dirname $$f) || exit 1; \
	  done; done

lint: $(TOOLS)/golangci-lint-$(GOLANGCI) ## run the linters
	$< run ./...

$(TOOLS)/golangci-lint-$(GOLANGCI):
	GOFLAGS= GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI)
	mv $(TOOLS)/golangci-lint $@

# Where the tool cannot be installed or its database not be reached, the check says so and passes: it found nothing out.
vuln: ## look for known vulnerabilities, where their database can be reached
	@mkdir -p $(TOOLS); GOFLAGS= GOBIN=$(TOOLS) $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK) >/dev/null 2>&1 \
	  || { echo "govulncheck $(GOVULNCHECK) cannot be installed from here: not checked"; exit 0; }; \
	out=$$($(TOOLS)/govulncheck ./... 2>&1); code=$$?; \
	if echo "$$out" | grep -q 'fetching vulnerabilities:'; then \
	  echo "govulncheck: the database of vulnerabilities cannot be reached from here: not checked"; \
	else echo "$$out"; exit $$code; fi

cc: # the race detector links with C
	@command -v gcc >/dev/null || command -v clang >/dev/null || { \
	  if command -v apt-get >/dev/null; then (apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev) >/dev/null \
	  || sudo apt-get install -y --no-install-recommends gcc libc6-dev; \
	  else echo "install a C compiler to run the tests with the race detector"; exit 1; fi; }

redis: # the tests of the shared limits run a real redis-server
	@command -v redis-server >/dev/null || { \
	  if command -v apt-get >/dev/null; then (apt-get update && apt-get install -y --no-install-recommends redis-server) >/dev/null \
	  || sudo apt-get install -y --no-install-recommends redis-server; \
	  else echo "install redis-server 7 to run the tests"; exit 1; fi; }

torture: ## kill, stop, cut off and fill up weir, at chosen points too; SEED=7 ARGS='--worker-kills 300' for more
	$(GO) build -trimpath -tags torture -o bin/weir-torture ./cmd/weir
	bin/weir-torture torture $(if $(SEED),--seed $(SEED)) $(ARGS)

bench: ## run the benchmarks beside their references
	$(GO) test -run '^$$' -bench . -benchmem ./...

clean: ## remove what was built
	rm -rf bin
