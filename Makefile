# Every habit of this project is a target here. Paths are relative, so a clone's path may hold spaces.

PYTHON  ?= python3
WORKERS ?= auto
NODES   ?= 3
KILL    ?=
MINUTES ?=

PY      := .venv/bin/python
READY   := .venv/ready
GPU_PYTHON ?= $(PYTHON)
BENCHES := start loop snapshot memory virtual nodes recovery scale status submit

export OMP_NUM_THREADS ?= 1
export TORCH_INDEX_URL WORKERS
# A fresh clone has the same files: what is known about them stays true.
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kitctl-mypy

.DEFAULT_GOAL := help

.PHONY: help
help: ## Explain every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  NODES=3 KILL=1       for demo: how many nodes; kill one of them on the way"
	@echo "  WORKERS=auto         for test: parallel test processes, of the tests without a cluster"
	@echo "  MINUTES=4            for bench-recovery and bench-scale: stop then; the next run goes on there"
	@echo "  PYTHON=python3       for setup: the interpreter of .venv (3.11 or later)"
	@echo "  GPU_PYTHON=python3   for test-gpu and bench-gpu: an interpreter with CUDA torch and pytest"
	@echo "  TORCH_INDEX_URL=...  for setup: another package index for torch, such as one without CUDA"

# -- the environment ------------------------------------------------------------------------------------------------

.PHONY: setup
setup: $(READY) ## Make .venv with all that running and testing need; quick when it is there
	@:

$(READY): pyproject.toml tools/setup.py
	@command -v $(PYTHON) >/dev/null || { echo "setup: no $(PYTHON) here; install Python 3.11 or later"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "setup: $$($(PYTHON) --version) is too old: 3.11 or later is needed; try make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) tools/setup.py $(READY)

.PHONY: clean
clean: ## Remove .venv, caches and whatever was built
	rm -rf .venv .cache dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- using it -------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: setup ## Train the handwritten digits on NODES local nodes; KILL=1 kills one of them on the way
	@$(PY) -m tools.demo --nodes $(NODES) $(if $(KILL),--kill)

# -- checking it ----------------------------------------------------------------------------------------------------

.PHONY: test
test: setup ## Set up, lint, and run every test that is not marked as long; on a cluster, too
	@$(PY) -m tools.run_tests lint fast slow cluster

.PHONY: test-fast
test-fast: setup ## Run the tests that need no cluster and start no training processes
	@echo "== fast tests"
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup -m "not slow" -rs

.PHONY: lint
lint: setup ## Check style, types, layers and the CI workflow
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
format: setup ## Rewrite the code the way the linter wants it
	@$(PY) -m ruff check --fix --show-fixes
	@$(PY) -m ruff format

# -- what is generated ----------------------------------------------------------------------------------------------

.PHONY: docs
docs: setup ## Write docs/cli.md, docs/job-file.md and docs/job.schema.json anew from the code
	@$(PY) -m tools.gen_docs

.PHONY: goldens
goldens: setup ## Write tests/golden anew: review the diff
	@$(PY) -m pytest -q tests/kitctl --update-goldens

.PHONY: bench $(BENCHES:%=bench-%)
bench: $(BENCHES:%=bench-%) ## Run every benchmark (some three hours) and write docs/performance.md

bench-start: setup ## How fast kitctl starts, beside torchx
bench-loop: setup ## What the training loop costs, beside a bare DDP loop
bench-snapshot: setup ## What a snapshot costs, beside torch's own ways, on this disk and a slow one; needs root
bench-memory: setup ## How much memory snapshots, restores and model files take, with 2 GB of state
bench-virtual: setup ## What loss curves with the same bits on any number of ranks cost
bench-nodes: setup ## The digits on 1, 2 and 3 nodes: accuracy and seconds
bench-status: setup ## kitctl status beside kubectl get and torchx status, on the cluster of make cluster-up
bench-submit: setup ## kitctl submit beside kubectl apply, to the first optimizer step, on that cluster
bench-recovery: setup ## From a fault to the next optimizer step, beside torchrun; needs root; goes on where it was stopped
bench-scale: setup ## Thousands of agents that find each other, beside torchrun's rendezvous; goes on where it was stopped
bench-recovery bench-scale: MORE = $(if $(MINUTES),--minutes $(MINUTES))
$(BENCHES:%=bench-%):
	@echo "== $@"
	@$(PY) -m bench.$(@:bench-%=%) $(MORE)
	@$(PY) -m bench.tables

# -- on a machine with a GPU: with the torch of GPU_PYTHON, and without `make setup` ----------------------------------

.PHONY: test-gpu
test-gpu: ## Run the tests that need a GPU, with GPU_PYTHON's own torch; no part of `make test`
	@KIT_GPU_TESTS=1 $(GPU_PYTHON) -m pytest -rs -v tests/gpu

.PHONY: bench-gpu
bench-gpu: ## What the trainer costs on a GPU, beside bare DDP, torchrun and DCP; no part of `make bench`
	@$(GPU_PYTHON) -m bench.gpu
	@$(GPU_PYTHON) -m bench.tables

# -- on a real cluster: docs/cluster-tests.md -----------------------------------------------------------------------

.PHONY: cluster-up
cluster-up: ## Bring up a Kubernetes cluster in docker: three workers, a registry, simulated GPUs
	@$(PYTHON) -m tests.cluster.kind up

.PHONY: cluster-down
cluster-down: ## Delete that cluster; what was built for it is kept
	@$(PYTHON) -m tests.cluster.kind down

.PHONY: test-cluster
test-cluster: setup ## Bring up the cluster and run only the tests that need it
	@$(PY) -m tools.run_tests cluster

.PHONY: test-long
test-long: setup ## Bring up the cluster and run the tests that take long, which `make test` leaves out
	@$(PY) -m tools.run_tests long

.PHONY: chaos
chaos: setup ## Bring up the cluster, and strike one job on it with fifty random faults
	@$(PY) -m tools.run_tests chaos
