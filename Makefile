# capgpu. `make help` lists the targets. `make test` and `make run-gpu-mock`
# are all the set-up there is: they install what is missing (as root) or print
# the command that does.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help deps build test lint generate kernels run-gpu-mock fuzz-short oracle clean

COMMANDS := device-manager gpu-service gpu-mock gpu-gate gpuctl
GO       ?= go

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## Install what the tests and the virtual machine need (Debian packages)
	@tools/install-deps.sh test vm

build: ## Build the static commands into bin/
	@tools/install-deps.sh go
	@tools/build.sh bin $(COMMANDS)

test: ## Run every test: vet, unit tests with -race, short fuzzing, C++ client, smoke guest
	@tools/install-deps.sh test vm
	@tools/test.sh

lint: ## Check formatting, and run vet, staticcheck and checklocks
	@tools/install-deps.sh go
	@tools/lint.sh

generate: ## Regenerate the Go of schema/capos.capnp
	@tools/install-deps.sh test
	$(GO) generate ./schema

kernels: ## Rebuild the kernels of program/library and of the examples from their sources
	@tools/install-deps.sh test
	@tools/kernels.sh

run-gpu-mock: ## Boot the service in a virtual machine and watch it prove itself (BREAK=vecadd|driver|leak|manager|panic|hang|silent: see it fail)
	@tools/install-deps.sh vm
	@$(GO) run ./qemu/cmd/smoke $(if $(BREAK),-break=$(BREAK))

fuzz-short: ## Run every fuzz target for a few seconds (FUZZTIME=3s)
	@tools/install-deps.sh go
	@tools/fuzz-short.sh

bench-kernels: ## Measure how fast kernels run here: native bodies against C, and the lane engine (ARGS="-json": as JSON)
	@tools/install-deps.sh go
	@cd bench && $(GO) run ./kernels $(ARGS)

oracle: ## Compare our engines with Mesa's lavapipe, and PoCL where it is, on the library and on random kernels (CAPGPU_ORACLE_LONG=1: for half an hour)
	@tools/install-deps.sh oracle
	@tools/oracle.sh

clean: ## Remove what was built; downloads stay in .cache (remove that by hand)
	rm -rf bin .tools .cache/guest .cache/initramfs-* .cache/fetch-*
