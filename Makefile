# One command sets everything up: `make demo` trains two models, `make test` checks the whole project.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
OUT    ?= rushlight-demo
# test processes: each wants a core and about a gigabyte
JOBS   ?= 2

# The tests start hundreds of interpreters, which share what the first of them compiled.
unexport PYTHONDONTWRITEBYTECODE

# other people's packages, without PyTorch
PACKAGES ?= .venv-packages

.PHONY: help dev demo demo-distributed demo-export test test-distributed lint types pytest test-slow test-oracle test-packages test-cuda-emulated test-ptx bench docs wheel clean

help:
	@echo "make demo         set up $(VENV) and train two small models (about a minute on 2 cores)"
	@echo "make demo-distributed  train a GPT on two processes by DDP and FSDP2, kill one on the way (two minutes, 6 GB of memory)"
	@echo "make demo-export  train the digits network and let it leave in every form: ONNX, packages, a library called from C, eight bits"
	@echo "make dev          set up $(VENV) with what the tests need, and nothing else"
	@echo "make test         set up $(VENV) and run lint, types and tests"
	@echo "make test-slow    the tests that take eight seconds or more each"
	@echo "make test-oracle  the tests that compare with real PyTorch, which it installs"
	@echo "make test-distributed  jobs of several processes: the long tests, and faults, FAULTS=$(FAULTS) times each"
	@echo "make test-cuda-emulated  the device cuda on an emulated driver, once for each of SEEDS='$(SEEDS)'"
	@echo "make test-ptx     the PTX of every kernel, interpreted as its manual says (half an hour)"
	@echo "make test-packages  the tests of packages that depend on PyTorch, which it installs without PyTorch into $(PACKAGES)"
	@echo "make lint types   one of the checks alone"
	@echo "make bench        measure our claims (against PyTorch where it is installed)"
	@echo "make docs         build the documentation as a site into build/site, with a search and a page for every operator"
	@echo "make wheel        build the wheel into dist/, with compiled code for common machines"
	@echo "make clean        remove $(VENV) and everything that was built"

# ***** environments: one folder, a stamp for each set of extras *****

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "rushlight needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.examples: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[examples]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[dev,examples]'
	@touch $@

$(VENV)/.distributed: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[examples,mpi]'
	@touch $@

$(VENV)/.export: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[examples,onnx]' onnxruntime
	@touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[docs]'
	@touch $@

$(VENV)/.oracle: $(VENV)/.dev
	$(PIP) install -e '.[dev,examples,oracle]'
	@touch $@

$(PACKAGES)/.installed: tests/packages/packages.txt tests/packages/beside.txt pyproject.toml
	$(PYTHON) -m venv $(PACKAGES)
	$(PACKAGES)/bin/python -m pip install -q -e '.[dev,mpi,notebook,safetensors]' -r tests/packages/beside.txt
	$(PACKAGES)/bin/python -m pip install -q --no-deps -r tests/packages/packages.txt
	@touch $@

# ***** what people run *****

dev: $(VENV)/.dev

demo: $(VENV)/.examples
	$(BIN)/python -m rushlight demo --out $(OUT)

demo-distributed: $(VENV)/.distributed
	$(BIN)/python -m rushlight demo --distributed --out $(OUT)-distributed

demo-export: $(VENV)/.export
	$(BIN)/python -m rushlight demo --export --out $(OUT)-export

# Types are checked by one process, which would leave the other core idle: beside the tests.
test: lint
	@$(MAKE) --no-print-directory -j2 types pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .

types: $(VENV)/.dev
	$(BIN)/mypy

pytest: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

# What takes eight seconds of a core or more each: demos, code for another machine, all operators in pieces, instructions counted.
test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m "slow and not oracle" -n $(JOBS) --dist worksteal

# Where the comparison is what we came for, a missing PyTorch is an error and no reason to skip.  The tests without the mark are `make test`'s.
test-oracle: $(VENV)/.oracle lint types
	RUSHLIGHT_TEST_ORACLE=1 $(BIN)/python -m pytest -q -m oracle -n $(JOBS) --dist worksteal

# Their `import torch` is rushlight: the test run itself is a program under `python -m rushlight`.
test-packages: $(PACKAGES)/.installed
	$(PACKAGES)/bin/python -m rushlight -m pytest -q -m packages -W default tests/packages

# Jobs of several processes: also what takes too long for `make test`; faults, FAULTS times each.
FAULTS ?= 100
test-distributed: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m "distributed or not distributed" tests/distributed
	$(BIN)/python tools/distributed_faults.py $(FAULTS)

# Every operator and what every device answers for, on emulated GPUs; a seed draws the order in which their streams run.
SEEDS ?= 0
test-cuda-emulated: $(VENV)/.dev
	for seed in $(SEEDS); do RUSHLIGHT_CUDA=emulated RUSHLIGHT_EMULATED_CUDA_DEVICES=2 RUSHLIGHT_EMULATED_CUDA_SEED=$$seed \
	  $(BIN)/python -m pytest -q -m "cuda and not slow" -n $(JOBS) --dist worksteal tests/cuda tests/triton_language || exit 1; done

# Every primitive, Triton programs and further architectures; units and flagships are `make test`'s and `make test-slow`'s.
test-ptx: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m ptx -n $(JOBS) --dist worksteal tests/cuda/ptx

bench: $(VENV)/.dev
	$(BIN)/python bench/run.py

docs: $(VENV)/.docs
	$(BIN)/python tools/site/build.py --out build/site

# With SHIP_PYTHONS="python3.12 python3.13" the objects for other versions of Python are there too: interpreters with numpy and llvmlite.
wheel: $(VENV)/.dev
	$(BIN)/python tools/ship_objects.py --python $(BIN)/python $(addprefix --python ,$(SHIP_PYTHONS))
	$(BIN)/python -m build --wheel .

clean:
	rm -rf $(VENV) $(PACKAGES) build dist src/rushlight/_native/packs .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
