# What developers run. Paths are relative, so that a clone's path may contain spaces.

PYTHON  ?= python3
WORKERS ?= auto
NODES   ?= 3
KILL    ?=
MINUTES ?=
VERSIONS ?=
BASE    ?=
SECONDS ?= 60

PY      := .venv/bin/python
READY   := .venv/ready
GPU_PYTHON ?= $(PYTHON)
BENCHES := start loop step survivors barrier hooks snapshot planning model-file memory mirror copies virtual nodes recovery recovery-spare recovery-live scale succession links status submit logs compare cluster-recovery cluster-recovery-spare

export OMP_NUM_THREADS ?= 1
# Without cached bytecode, each of some thousand processes of a test run would compile this repository's modules anew.
unexport PYTHONDONTWRITEBYTECODE
export TORCH_INDEX_URL WORKERS
# Shared by all clones: mypy's cache is keyed by the files' content.
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kitctl-mypy

.DEFAULT_GOAL := help

.PHONY: help
help: ## Explain every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  NODES=3 KILL=1       for demo: number of nodes; kill one of them during training"
	@echo "  WORKERS=auto         for test: parallel test processes, for tests without a cluster"
	@echo "  BASE=origin/main     for test-changed: what differs from this branch or commit; SECONDS=60: about how long"
	@echo "  MINUTES=4            for bench-(cluster-)recovery and bench-scale: stop after this; the next run continues"
	@echo "  PYTHON=python3       for setup: the interpreter of .venv (3.11 or later)"
	@echo "  GPU_PYTHON=python3   for test-gpu and bench-gpu: an interpreter with CUDA torch and pytest"
	@echo "  VERSIONS=...         for test-versions: PYTHON:TORCH pairs, such as 3.11:2.6.0"
	@echo "  TORCH_INDEX_URL=...  for setup: another package index for torch, such as one without CUDA"
	@echo "  KIT_NO_SYSTEM=1      install no Debian packages and start no docker daemon: skip what needs them"

# -- the environment ------------------------------------------------------------------------------------------------

.PHONY: setup
setup: $(READY) ## Make .venv with everything that running and testing need; does nothing if it is up to date
	@$(PY) -c 'from kitctl.code import trainer_package; trainer_package.load()' # packs what has changed, for the chart

$(READY): pyproject.toml tools/constraints.txt tools/setup.py
	@command -v $(PYTHON) >/dev/null || { echo "setup: no $(PYTHON) here; install Python 3.11 or later"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "setup: $$($(PYTHON) --version) is too old: 3.11 or later is needed; try make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m tools.setup $(READY)

.PHONY: constraints
constraints: setup ## Update tools/constraints.txt: the newest versions of all packages that pyproject.toml allows
	@$(PY) -c 'from tools import setup; setup.resolve()'

.PHONY: clean
clean: ## Remove .venv, caches and build outputs
	rm -rf .venv .cache dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- demo -----------------------------------------------------------------------------------------------------------

.PHONY: recording
recording: setup ## Record `make demo KILL=1` as docs/images/kill.svg, for README
	@$(PY) -m tools.recording

.PHONY: report-picture
report-picture: setup ## Run a job with two faults, and draw its report as docs/images/report.png, for README; needs Chromium
	@$(PY) -m tools.report_picture

.PHONY: demo
demo: setup ## Train handwritten digits on NODES local nodes; KILL=1 kills one of them during training
	@$(PY) -m tools.demo --nodes $(NODES) $(if $(KILL),--kill)

# -- checks ---------------------------------------------------------------------------------------------------------

.PHONY: test
test: setup ## Set up, lint, and test each behaviour once; makes a test cluster in docker, and says so first
	@$(PY) -m tools.run_tests lint fast slow cluster

.PHONY: test-fast
test-fast: setup ## Run the tests that need no cluster and start no training
	@$(PY) -m tools.run_tests fast

.PHONY: test-changed
test-changed: setup ## Run the tests that a change can break, nearest first, in about a minute
	@SECONDS=$(SECONDS) $(PY) -m tools.changed_tests $(BASE)

.PHONY: test-versions
test-versions: setup ## Run the trainer's tests with other versions of Python and torch; large downloads
	@$(PY) -m tools.test_versions $(VERSIONS)

.PHONY: test-frameworks
test-frameworks: setup ## Run the tests with Hugging Face, Accelerate, Lightning and JAX, in an environment of their own
	@$(PY) -m tools.test_frameworks

.PHONY: lint
lint: setup ## Check style, types, layers and the GitHub workflows
	@echo "== ruff: style"
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@echo "== mypy: types"
	@$(PY) -m mypy
	@echo "== import-linter: layers"
	@.venv/bin/lint-imports --no-logo
	@echo "== actionlint: .github/workflows"
	@$(PY) -m tools.lint_workflows

.PHONY: format
format: setup ## Format the code and apply the linter's fixes
	@$(PY) -m ruff check --fix --show-fixes
	@$(PY) -m ruff format

# -- generated files -----------------------------------------------------------------------------------------------

.PHONY: docs
docs: setup ## Generate the reference pages and schemas of docs/ from the code
	@$(PY) -m tools.gen_docs

.PHONY: goldens
goldens: setup ## Generate tests/golden; review the diff
	@$(PY) -m pytest -q tests/kitctl --update-goldens

.PHONY: bench $(BENCHES:%=bench-%)
bench: $(BENCHES:%=bench-%) ## Run every benchmark (about three hours) and write docs/performance.md

bench-start: setup ## How fast kitctl starts, compared with torchx
bench-loop: setup ## Overhead of the training loop over a bare DDP loop
bench-step: setup ## What a step of a tiny model costs besides bare DDP: processor time and operations
bench-survivors: setup ## What being ready to live on costs a step, with DDP and with FSDP2 with replicas
bench-barrier: setup ## What a barrier of a replica's ranks costs a step, by sockets and by a collective
bench-hooks: setup ## Cost of the hooks in the ranks of a plain script
bench-snapshot: setup ## Cost of a snapshot, compared with torch's own, on this disk and a slow one; needs root
bench-planning: setup ## Who writes which part of a snapshot: planned by rank 0 and by each rank, for 256 simulated ranks
bench-model-file: setup ## The model file of a sharded run: written by rank 0 and by each of 256 simulated ranks
bench-memory: setup ## Memory that snapshots, restores and model files need, with 2 GB of state
bench-mirror: setup ## What uploading snapshots to a mirror costs a step, with a real S3 server on this machine
bench-copies: setup ## What copies of snapshots on other nodes cost a step, and how long a snapshot stalls training
bench-virtual: setup ## Overhead of bitwise equal loss curves on any number of ranks
bench-nodes: setup ## Digits on 1, 2 and 3 nodes: accuracy and seconds
bench-status: setup ## kitctl status compared with kubectl get and torchx status, on the test cluster
bench-submit: setup ## kitctl submit compared with kubectl apply, to the first optimizer step, on the test cluster
bench-logs: setup ## kitctl logs -f compared with stern and kubectl, on 64 pods of the test cluster
bench-recovery: setup ## Time from a fault to the next optimizer step, compared with torchrun; needs root; resumable
bench-recovery-spare: setup ## The same with a node that stands by; needs root; resumable
bench-cluster-recovery: setup ## The same for a killed agent, a deleted pod and a lost machine on the test cluster; resumable
bench-cluster-recovery-spare: setup ## The same for a deleted pod, with one that stands by; resumable
bench-compare: setup ## One model alone, with DDP and with FSDP2, on one node and on several; with a plot
bench-scale: setup ## Rendezvous of thousands of agents, compared with torchrun's; resumable
bench-succession: setup ## Rendezvous of up to 512 agents that lose node 0's hub
bench-links: setup ## Whether busy machines and bad links are taken for lost ones: 512 agents, an hour; needs root
# A benchmark's module, in whichever folder: recovery -> bench.recovery.recovery.
module = $(subst /,.,$(basename $(wildcard bench/$(1).py bench/*/$(1).py)))
bench-recovery bench-recovery-spare bench-recovery-live bench-scale bench-links bench-cluster-recovery bench-cluster-recovery-spare: MORE = $(if $(MINUTES),--minutes $(MINUTES))
$(BENCHES:%=bench-%):
	@echo "== $@"
	@$(PY) -m $(call module,$(subst -,_,$(@:bench-%=%))) $(MORE)
	@$(if $(filter bench-compare,$@),$(PY) -m bench.comparison.plots)
	@$(PY) -m bench.tables

# -- with a GPU: uses the torch of GPU_PYTHON, without `make setup` ----------------------------------------------------

# GPU_PYTHON has torch, but not this project.
GPU_PATH = PYTHONPATH=trainer:.$${PYTHONPATH:+:$$PYTHONPATH}

.PHONY: test-gpu
test-gpu: ## Run the tests that need a GPU, with GPU_PYTHON's torch; not part of `make test`
	@$(GPU_PATH) KIT_GPU_TESTS=1 $(GPU_PYTHON) -m pytest -rs -v tests/gpu

.PHONY: bench-gpu
bench-gpu: ## Overhead of the trainer on a GPU, compared with bare DDP, torchrun and DCP; not part of `make bench`
	@$(GPU_PATH) $(GPU_PYTHON) -m bench.gpu
	@$(GPU_PATH) $(GPU_PYTHON) -m bench.comparison.compare --device cuda
	@$(GPU_PYTHON) -m bench.tables

# -- on a real cluster: docs/cluster-tests.md -----------------------------------------------------------------------

.PHONY: cluster-up
cluster-up: setup ## Create a Kubernetes cluster in docker: three workers, a registry, simulated GPUs
	@$(PY) -m tests.cluster.kind up

.PHONY: cluster-down
cluster-down: setup ## Delete that cluster; what was built for it is kept
	@$(PY) -m tests.cluster.kind down

.PHONY: test-cluster
test-cluster: setup ## Create the cluster and run only the tests that need it
	@$(PY) -m tools.run_tests cluster

.PHONY: test-wide
test-wide: setup ## Run what `make test` leaves to CI: further combinations and whole stories, and a lost machine's power
	@$(PY) -m tools.run_tests wide wide-cluster

.PHONY: test-controllers
test-controllers: setup ## Build JobSet, Kubeflow Trainer and Kueue for the cluster, and run the tests that need them
	@$(PY) -m tools.run_tests controllers

.PHONY: test-long
test-long: setup ## Create the cluster and run the long tests, which `make test` leaves out
	@$(PY) -m tools.run_tests long

.PHONY: corpus
corpus: setup ## Make every situation of docs/corpus.md live, here and on the cluster if it is up, and write that page
	@$(PY) -m tests.corpus

.PHONY: chaos
chaos: setup ## Create the cluster, and inject fifty random faults into one job on it
	@$(PY) -m tools.run_tests chaos
