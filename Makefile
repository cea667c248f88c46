# capgpu. `make help` lists the targets. `make test` and `make run-gpu-mock`
# are all the set-up there is: they install what is missing (as root) or print
# the command that does.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help deps build install test test-nightly test-hardware lint generate kernels conformance run-gpu-mock run-gpu-edu run-gpu-vulkan fuzz fuzz-short fuzz-firewall mutate \
	bench bench-docs bench-kernels bench-hw attack crash-campaign kill-campaign sim soak oracle clean

COMMANDS := device-manager gpu-service gpu-mock gpu-gate gpuctl gpu-engine-launch model-server
ENGINES  := gpu-engine-vulkan
GO       ?= go

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { n = split($$2, text, " [|] "); printf "  %-14s %s\n", $$1, text[1]; \
		if (n > 1) printf "  %14s %s\n", "", text[2] }' $(MAKEFILE_LIST)

deps: ## Install what the tests and the virtual machine need (Debian packages)
	@tools/install-deps.sh test vm

build: ## Build the commands into bin/, all but engines static, and what goes along with them of licences | VERSION=v0.1.0: as this release
	@tools/install-deps.sh go
	@VERSION='$(VERSION)' tools/build.sh bin $(COMMANDS) $(ENGINES)
	@$(GO) run ./packaging/copyright -o bin/copyright $(addprefix ./cmd/,$(COMMANDS))

install: ## Put what `make build` built into /usr, with the systemd units and the documents | DESTDIR=DIR: below another root
	install -D -m 755 -t $(DESTDIR)/usr/libexec/capgpu $(addprefix bin/,$(filter-out gpuctl,$(COMMANDS)))
	install -D -m 755 -t $(DESTDIR)/usr/bin bin/gpuctl
	install -D -m 644 -t $(DESTDIR)/usr/lib/systemd/system packaging/capgpu.service packaging/capgpu-model@.service
	install -D -m 644 -t $(DESTDIR)/usr/lib/systemd/user packaging/capgpu-dev.service
	install -D -m 644 packaging/sysusers.conf $(DESTDIR)/usr/lib/sysusers.d/capgpu.conf
	tools/install-docs.sh $(DESTDIR)/usr/share/doc/capgpu
	install -D -m 644 -t $(DESTDIR)/usr/share/doc/capgpu LICENSE NOTICE bin/copyright
	install -D -m 644 -t $(DESTDIR)/usr/share/doc/capgpu/examples packaging/policy.json packaging/policy-hardware.json

test: ## Run what every commit is held to: unit tests with -race and at full size, the C++ client, virtual machines
	@tools/install-deps.sh test vm
	@tools/test.sh

test-nightly: ## Run all of it and what takes longer: broken guests, a browser, other engines, fuzzing, the campaigns | SEED=N: a night again; MINUTES=20 of fuzzing, SEEDS=5000 of the simulation, KILLS=300
	@SEED='$(SEED)' MINUTES='$(MINUTES)' SEEDS='$(SEEDS)' KILLS='$(KILLS)' tools/test-nightly.sh

test-hardware: ## Of the tests, those that need real PCI functions, in virtual machines: vfio, IOMMU, edu, sandbox, kills
	@tools/install-deps.sh test vm
	CAPGPU_REQUIRE_VM=1 $(GO) test -count=1 -timeout=90m -v ./qemu/... -run Hardware

lint: ## Check formatting, and run vet, staticcheck and checklocks
	@tools/install-deps.sh go
	@tools/lint.sh

generate: ## Regenerate the Go of schema/capos.capnp
	@tools/install-deps.sh test
	$(GO) generate ./schema

kernels: ## Rebuild the kernels of program/library and of the examples from their sources
	@tools/install-deps.sh test
	@tools/kernels.sh

conformance: ## Run the 15 behaviours on the mock, on one with memory of its own and on edu, by the Go client and by Cap'n Proto, and print the table | ARGS="-full", "-json", "-devices mock", "-run 0[14]", "-v"
	@tools/install-deps.sh vm
	@$(GO) run ./qemu/cmd/conformance $(ARGS)

run-gpu-mock: ## Boot the service in a virtual machine and watch it prove itself | BREAK=vecadd|driver|model|leak|manager|panic|hang|silent: see it fail
	@tools/install-deps.sh vm
	@$(GO) run ./qemu/cmd/smoke $(if $(BREAK),-break=$(BREAK))

run-gpu-vulkan: build ## Serve a Vulkan device, Mesa's lavapipe if no other is named, and watch it: tenants, hangs, kills | VULKAN_ICD=FILE NODES=… ADDRESS=…: another; MODEL=FILE TEXT=FILE: a language model
	@tools/install-deps.sh oracle
	@tools/run-gpu-vulkan.sh

run-gpu-edu: ## Boot it on two edu functions behind an IOMMU in a virtual machine and watch it: tenants, a hostile driver, kills, removal | BREAK=bit|bystander|scrub|policy|unplug|leak: see it fail; KILLS=100, SEED=N
	@tools/install-deps.sh vm
	@$(GO) run ./qemu/cmd/hw $(if $(BREAK),-break=$(BREAK)) $(if $(KILLS),-kills=$(KILLS)) $(if $(SEED),-seed=$(SEED))

fuzz-firewall: ## Damage conversations with the Cap'n Proto firewall, in four tests | SECONDS=30 each
	@tools/install-deps.sh test
	CAPGPU_FUZZ_SECONDS=$(or $(SECONDS),30) $(GO) test -race -count=1 -timeout=2h ./internal/rpcguard ./gate ./model/rpc -run '^(TestFuzzSemantic|TestFuzzConversations|TestRandomCalls)$$'

fuzz-short: ## Run every fuzz target for a second, as many at once as there are processors | FUZZTIME=1s
	@tools/install-deps.sh go
	@tools/fuzz-short.sh

fuzz: ## Fuzz every target and print what came of each | MINUTES=10, which they share; ALL=1: guided by the coverage of other packages too
	@tools/install-deps.sh go
	@tools/fuzz.sh $$((60 * $(or $(MINUTES),10)))

mutate: ## Change the code of a package in small ways, and see what its tests do not notice | PKG="./ledger ./internal/revoke ./ring ./control", LIMIT=150 of each, 0: all; MINUTES=N at most; SEED=N
	@tools/install-deps.sh go
	@cd tools && $(GO) run ./mutate $(if $(LIMIT),-limit=$(LIMIT)) $(if $(MINUTES),-for=$(MINUTES)m) $(if $(SEED),-seed=$(SEED)) $(or $(PKG),./ledger ./internal/revoke ./ring ./control)

bench: ## Measure the data plane and a language model beside their peers: one table | ARGS="-json", "-pairs 1000", "-help"; bench-P1 to P12: one figure; bench-docs: the tables of docs/ anew
	@tools/install-deps.sh go
	@tools/build.sh bin $(COMMANDS) >&2
	@cd bench && $(GO) run ./dataplane -out ../.cache/bench.json $(ARGS)

bench-P%:
	@tools/install-deps.sh go
	@tools/build.sh bin $(COMMANDS) >&2
	@cd bench && $(GO) run ./dataplane $(ARGS) P$*

bench-docs: override ARGS += -docs ../docs
bench-docs: bench

bench-kernels: ## Measure how fast kernels run here: native bodies against C, and the lane engine | ARGS="-json"
	@tools/install-deps.sh go
	@cd bench && $(GO) run ./kernels $(ARGS)

bench-hw: ## Measure what the service costs over the bare kernel, on a device in a virtual machine | ARGS="-json", "-pairs 1000"; bench-hw-irq, bench-hw-map, bench-hw-ioctls: one figure
	@tools/install-deps.sh vm
	@$(GO) run ./qemu/cmd/bench-hw $(ARGS)

bench-hw-%:
	@tools/install-deps.sh vm
	@$(GO) run ./qemu/cmd/bench-hw $(ARGS) $*

attack: ## Attack the service beside a victim that does checked work, in every way a client has, and print what came of it | SECONDS=60, SEED=N
	@tools/install-deps.sh go
	@tools/build.sh bin $(COMMANDS) >&2
	@cd bench && $(GO) run ./cmd/attack $(if $(SECONDS),-seconds $(SECONDS)) $(if $(SEED),-seed $(SEED))

crash-campaign: ## Have each process die at each of its labelled places, under load: one table | ROUNDS=2: at passes of chance, too; SEED=N; LABEL=driver.reset: only these
	@tools/install-deps.sh go
	@CAPGPU_CRASH_ROUNDS=$(or $(ROUNDS),1) CAPGPU_CRASH_SEED=$(SEED) CAPGPU_CRASH_LABEL=$(LABEL) $(GO) test -count=1 -timeout=2h -parallel=4 -v ./internal/crashtest -run '^TestCrashPoints$$' | grep -v '^=== \|^ *--- PASS'

kill-campaign: ## Kill drivers, gates and clients at random moments, and look for a false word | KILLS=1000, SEED=N
	@tools/install-deps.sh go
	@CAPGPU_KILLS=$(or $(KILLS),1000) CAPGPU_CRASH_SEED=$(SEED) $(GO) test -count=1 -timeout=2h -v ./internal/crashtest -run '^TestKills$$' | grep -v '^=== '

sim: ## Run the whole service on virtual time, with faults of 24 classes | SEEDS=2000 FIRST=0: so many seeds; SEED=0x…: one, with its trace
	@tools/install-deps.sh go
	@SEEDS='$(SEEDS)' FIRST='$(FIRST)' SEED='$(SEED)' tools/sim.sh

soak: ## Soak the service: 1,024 sessions, 100,000 buffers, kills of everybody, and at each quiet point the ledger against the kernel | MINUTES=10, SEED=N
	@tools/install-deps.sh go
	@tools/build.sh bin $(COMMANDS) >&2
	@cd bench && $(GO) run ./cmd/soak $(if $(MINUTES),-minutes $(MINUTES)) $(if $(SEED),-seed $(SEED))

oracle: ## Compare our engines with Mesa's lavapipe, and PoCL where it is, on the library and on random kernels, and run the Vulkan engine | CAPGPU_ORACLE_LONG=1: for half an hour
	@tools/install-deps.sh oracle
	@tools/oracle.sh

clean: ## Remove what was built; downloads stay in .cache (remove that by hand)
	rm -rf bin .tools .cache/guest .cache/initramfs-* .cache/fetch-*
