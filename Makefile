# Everything weir needs is installed by these targets; see README.md.

GO            ?= go
FUZZTIME      ?= 20000x
SEED          ?=
GOLANGCI      := v2.15.0
GOVULNCHECK   := v1.1.4
GOTESTSUM     := v1.13.0
HELM          := v3.22.0
NATSCLI       := v0.5.1
REDOCLY       := 2.77.0
AXE           := 4.14.1
AXE_SHA256    := e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
FSYNC         ?= 5ms
TOOLS         := $(CURDIR)/bin/tools

.PHONY: help run test test-all race cross vet notice manual prose tidy unit simulation fuzz simulate slowdisk midnight lint chart vuln redis promtool chromium axe natscli helm openapi build image fields rights manifests torture bench bench-peers clean cc

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

run: build ## show weir working: everything embedded, with a fake paid API
	bin/weir demo $(DEMO)

# The version and commit of a build. A tarball of git archive has them in the source and needs no git.
SAYS    := weir/cmd/weir/internal/cli
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS  = -s -w $(if $(VERSION),-X $(SAYS).release=$(VERSION)) $(if $(COMMIT),-X $(SAYS).commit=$(COMMIT))

test: ## check a change, in about ten minutes on two cores: vet, lint, and the tests that a contributor needs. CI runs this
	@$(call steps,vet lint unit)

test-all: ## check everything, in an hour: all tests with the race detector, kills and torture, all seeds, fuzzing, other systems, a slow disk
	@$(call steps,vet lint race cross vuln simulation fuzz openapi slowdisk)

# steps runs targets one after another and says how long each took.
steps = begun=$$(date +%s); for step in $(1); do \
	  began=$$(date +%s); echo "== $$step"; $(MAKE) --no-print-directory $$step; code=$$?; now=$$(date +%s); \
	  [ $$code = 0 ] || { echo "== $$step failed after $$((now - began)) s"; exit $$code; }; \
	  echo "== $$step passed in $$((now - began)) s, $$((now - begun)) s since the beginning"; \
	done

manifests: helm ## render deploy/k8s from the chart, after copying alerts and weir.yaml into it
	@cp deploy/prometheus/alerts.yaml deploy/k8s/weir.yaml deploy/helm/weir/files/
	@UPDATE_GOLDEN=1 $(GO) test ./cmd/weir/test/docs -run ChartSaysWhatTheManifestsSay

fields: ## write what comes from the registry of fields: tables of the help, JSON Schema, the reference's end, expected values
	@UPDATE_GOLDEN=1 $(GO) test ./cmd/weir/internal/config -run 'TestGoldenFiles|TestReference'
	@UPDATE_GOLDEN=1 $(GO) test ./cmd/weir/test/docs -run 'DocsOfConfiguration|DocsOfVariables$$|DocsOfVendors|DocsSchemaFiles'

rights: ## write the users and accounts of deploy/nats from the list of rights in cmd/weir/internal/nats/jsproxy/rights.go
	@UPDATE_GOLDEN=1 $(GO) test ./cmd/weir/internal/nats/jsproxy -run RightsOfDeploy

build: ## build bin/weir
	$(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/weir ./cmd/weir

image: ## build the image weir with docker
	docker build -f deploy/Dockerfile --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) -t weir .

# Code that compiles for these also compiles for the same systems on the other processor. Vet skips tests, which run on Linux only.
PLATFORMS ?= linux/arm64 darwin/arm64 windows/amd64

cross: $(TOOLS)/golangci-lint-$(GOLANGCI) ## build and vet for the other systems that weir runs on: PLATFORMS=freebsd/amd64 for another
	@for platform in $(PLATFORMS); do echo "$$platform"; export CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/}; \
	  $(GO) build -trimpath -o /dev/null ./cmd/weir && $< run --tests=false --enable-only=govet ./cmd/weir/... || exit 1; done

CHECKOUT = @git rev-parse -q --git-dir >/dev/null 2>&1 || { echo "$@ needs a git checkout: it asks git for the files"; exit 1; }

vet: # checks that the linters lack; lint also runs go vet
	$(CHECKOUT)
	$(GO) vet -tags torture ./bucket/fault
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt would change:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	@for module in $(MODULES); do (cd $$module && $(GO) mod tidy -diff) || { echo "$$module/go.mod is not tidy: make tidy"; exit 1; }; done
	$(GO) run ./.ci/prose -judge

# The torture, the tests in a browser, and the programs that weir is compared with are modules of their own, so that
# go.mod has only weir's dependencies.
BROWSER := cmd/weir/test/console
MODULES := . cmd/weir-torture cmd/weir-peers $(BROWSER) deploy/bench

notice: ## write NOTICE, the licences of what weir links
	WEIR_TEST_WRITE_NOTICE=1 $(GO) test -trimpath ./cmd/weir/test/soak -run TestNotice -count=1

manual: ## write manual pages of commands (1) and topics (7), and completions for shells into bin/manual, for packages
	rm -rf bin/manual && WEIR_TEST_MANUAL=$(CURDIR)/bin/manual $(GO) test -trimpath ./cmd/weir/test/docs -run TestManual -count=1

prose: ## list sentences in comments that are hard to read: DIR=./dispatcher KIND=person for fewer
	$(GO) run ./.ci/prose -kind '$(KIND)' $(or $(DIR),.)

tidy: ## tidy the go.mod of each module
	@for module in $(MODULES); do (cd $$module && $(GO) mod tidy) || exit 1; done

# Each package is shown with its time when it ends, and then the ten slowest tests. A test that hangs shows its stack after the timeout.
SUMS   = $(TOOLS)/gotestsum-$(GOTESTSUM)
# lint runs go vet, so the tests need not.
GOTEST  = $(SUMS) --format pkgname --hide-summary skipped --jsonfile $(CURDIR)/bin/$@$(1).json -- -vet=off
SLOWEST = @echo "the slowest tests:"; cat bin/$@*.json | $(SUMS) tool slowest --num 10

# The packages that unit runs under the race detector: those whose goroutines share memory. The simulations of SIMULATED run
# in one goroutine, and are ten times as fast without the detector. In race a whole weir runs under it.
SIMULATED := ./dispatcher/schedule ./dispatcher/schedule/replicas ./dispatcher/takeover ./dispatcher/sites
RACED := $$($(GO) list ./ingest/... ./bucket/queue/... ./bucket/stream/... ./bucket/lease/... ./deadletter/... ./dispatcher/... | grep -vxF "$$($(GO) list $(SIMULATED))")
# The tests that only race runs: they kill at random, wait for a real clock, fill a disk or build for other systems.
SOAK  := weir/cmd/weir/test/soak

# The stores of tests are on a tmpfs if there is one with room. Tests about disks are in soak, or ask for a directory beside the code.
MEMORY = $(shell [ -w /dev/shm ] && [ "$$(df --output=avail -m /dev/shm | tail -1)" -ge 8192 ] && echo TMPDIR=/dev/shm GOTMPDIR=$${TMPDIR:-/tmp})

TESTED = redis promtool chromium axe cc natscli helm $(SUMS)

# Most tests wait for events, so more packages run at a time than there are cores, here and in race.
unit: $(TESTED) ## run the tests for every change, some of them with the race detector
	@mkdir -p bin && rm -f bin/$@*.json
	$(MEMORY) $(call GOTEST,-raced) -race -p 3 -timeout 10m $(RACED)
	$(MEMORY) $(GOTEST) -p 3 -parallel 8 -timeout 10m $$($(GO) list ./... | grep -vxF "$$(printf '%s\n' $(RACED) $(SOAK))")
	cd $(BROWSER) && $(MEMORY) $(call GOTEST,-browser) -parallel 8 -timeout 10m ./...
	cd cmd/weir-torture && $(MEMORY) $(call GOTEST,-torture) -timeout 10m ./internal/...
	cd cmd/weir-peers && $(MEMORY) $(call GOTEST,-peers) -timeout 10m ./...
	$(SLOWEST)

# The soak takes both processors, and runs alone.
race: $(TESTED) ## run every test with the race detector, on the disk
	@mkdir -p bin && rm -f bin/$@*.json
	$(GOTEST) -race -p 3 -parallel 4 -timeout 50m $$($(GO) list ./... | grep -vxF $(SOAK))
	$(call GOTEST,-soak) -race -parallel 4 -timeout 50m $(SOAK)
	cd $(BROWSER) && $(call GOTEST,-browser) -race -parallel 4 -timeout 50m ./...
	cd cmd/weir-torture && $(call GOTEST,-torture) -race -p 1 -parallel 4 -timeout 50m ./...
	cd cmd/weir-peers && $(call GOTEST,-peers) -timeout 10m ./...
	$(SLOWEST)

simulation: ## run all seeds of the schedule, of recovery, of sites and of ownership in virtual time: unit and race run one in twenty
	$(GO) test -run Simulation -timeout 30m $(SIMULATED) ./dispatcher/ownership -args -all

slowdisk: redis promtool chromium axe $(TOOLS)/gotestsum-$(GOTESTSUM) ## run the tests as on a disk that takes FSYNC=5ms for each fsync
	overlay=$$(GO=$(GO) .ci/slowdisk bin/.slowdisk $(FSYNC)) && \
	  GOFLAGS="$$($(GO) env GOFLAGS) -overlay=$$overlay" $(GOTEST) -p 2 -parallel 8 -timeout 30m $(or $(PACKAGES),./bucket/... ./dispatcher/... ./cmd/weir/test/intake ./cmd/weir/test/jobs ./cmd/weir/test/recovery)

midnight: redis ## run tests as if midnight, by UTC, came BEFORE=3 seconds after their start: PACKAGE=./cmd/weir/test/limits RUN=TestVerify
	GO=$(GO) .ci/midnight bin/.midnight $(or $(PACKAGE),./cmd/weir/test/limits) '$(or $(RUN),.)' $(or $(BEFORE),3)

SEEDS ?= 100000

simulate: ## run more seeds through the schedule, recovery and sites in virtual time: SEED=first SEEDS=how many of each
	$(GO) test $(SIMULATED) -run Simulation -timeout 24h -args -seed $(or $(SEED),0) -seeds $(SEEDS)

# FUZZTIME is a number of inputs: with seconds, Go sometimes reports the end of the time as a failure (golang/go#75804).
fuzz: ## run every fuzz target briefly: FUZZTIME=1000000x for longer
	$(CHECKOUT)
	@for f in $$(git grep -l '^func Fuzz' -- '*_test.go'); do \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$f); do echo "$$name for $(FUZZTIME)"; \
	    $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x -timeout 10m ./$$(dirname $$f) || exit 1; \
	  done; done

lint: $(TOOLS)/golangci-lint-$(GOLANGCI) ## run the linters
	@for module in $(MODULES); do (cd $$module && $< run ./...) || exit 1; done

$(TOOLS)/golangci-lint-$(GOLANGCI):
	GOFLAGS= GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI)
	mv $(TOOLS)/golangci-lint $@

natscli: $(TOOLS)/nats-$(NATSCLI) # NATS' own command line is tried against weir

$(TOOLS)/nats-$(NATSCLI):
	GOFLAGS= GOBIN=$(TOOLS) $(GO) install -trimpath -ldflags '-s -w' github.com/nats-io/natscli/nats@$(NATSCLI)
	mv $(TOOLS)/nats $@

$(TOOLS)/gotestsum-$(GOTESTSUM):
	GOFLAGS= GOBIN=$(TOOLS) $(GO) install gotest.tools/gotestsum@$(GOTESTSUM)
	mv $(TOOLS)/gotestsum $@

helm: $(TOOLS)/helm-$(HELM) # the chart is rendered by Helm itself

chart: helm ## check the chart of deploy/helm
	$(GO) test -trimpath ./cmd/weir/test/docs -run TestChart -count=1

$(TOOLS)/helm-$(HELM):
	GOFLAGS= GOBIN=$(TOOLS) $(GO) install -trimpath -ldflags '-s -w' helm.sh/helm/v3/cmd/helm@$(HELM)
	mv $(TOOLS)/helm $@

# Every warning is an error there, so that generators and catalogues take the document as it is.
openapi: $(TOOLS)/redocly-$(REDOCLY) ## validate the OpenAPI document with Redocly's linter, which needs npm
	cd cmd/weir/internal/httpd/httpapi && REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true $</node_modules/.bin/redocly lint --config redocly.yaml openapi.json

$(TOOLS)/redocly-$(REDOCLY):
	rm -rf $@.new && npm install --prefix $@.new --no-audit --no-fund --ignore-scripts @redocly/cli@$(REDOCLY)
	mv $@.new $@

# If the tool cannot be installed or its database cannot be reached, the check says so and passes.
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

promtool: # the alerts are tested by Prometheus' own tool
	@command -v promtool >/dev/null || { \
	  if command -v apt-get >/dev/null; then (apt-get update && apt-get install -y --no-install-recommends prometheus) >/dev/null \
	  || sudo apt-get install -y --no-install-recommends prometheus; \
	  else echo "install prometheus, for its promtool, to run the tests"; exit 1; fi; }

chromium: # the console is tested in a real browser
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  if command -v apt-get >/dev/null; then (apt-get update && apt-get install -y --no-install-recommends chromium) >/dev/null \
	  || sudo apt-get install -y --no-install-recommends chromium; \
	  else echo "install Chromium to run the tests of the console"; exit 1; fi; }

axe: # axe-core judges whether the console's pages can be used by everybody
	@$(MAKE) --no-print-directory $(TOOLS)/axe-$(AXE).js || echo "axe-core cannot be had from npm here: the test of the console's accessibility is skipped"

$(TOOLS)/axe-$(AXE).js:
	@mkdir -p $(TOOLS)/.axe && cd $(TOOLS)/.axe && npm pack --silent --fetch-retries=0 axe-core@$(AXE) >/dev/null && \
	  echo "$(AXE_SHA256)  axe-core-$(AXE).tgz" | sha256sum -c --quiet && tar xzf axe-core-$(AXE).tgz package/axe.min.js && mv package/axe.min.js $@
	@rm -rf $(TOOLS)/.axe

torture: ## kill, stop, cut off and fill up weir, at chosen points too; SEED=7 ARGS='--worker-kills 300' for more
	$(GO) build -trimpath -tags torture -o bin/torture/ ./cmd/weir
	cd cmd/weir-torture && $(GO) build -trimpath -tags torture -o $(CURDIR)/bin/torture/ .
	bin/torture/weir-torture $(if $(SEED),--seed $(SEED)) $(ARGS)

bench: ## run the benchmarks beside their references
	$(GO) test -run '^$$' -bench . -benchmem ./...
	cd deploy/bench && $(GO) test -run '^$$' -bench . -benchmem ./...

bench-peers: ## measure weir beside bare NATS, River, Asynq and BullMQ in one run: ARGS='--rounds 9 --json' for more
	cd cmd/weir-peers && $(GO) run -trimpath . $(ARGS)

clean: ## remove what was built
	rm -rf bin
