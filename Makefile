# One word per daily task; CI calls these same words. Nothing here needs root.
PYTHON ?= python3
# What is compiled at a time: as much as there are cores.
JOBS ?= $(shell nproc)
# Unit tests at a time; each process loads PyTorch.
TEST_JOBS ?= 2
# The tests that start processes often wait.
MP_JOBS ?= 4
# SLOW=1 runs the tests that are marked slow, too, as CI does.
SLOW ?=
# Each of these loads TensorFlow.
TF_JOBS ?= 2
# Each of these has an application of Spark of its own, with two executors.
SPARK_JOBS ?= 2
# Each of these has a cluster of Ray of its own, with two nodes.
RAY_JOBS ?= 2
WERROR ?= OFF
# Of make wheel: versions, such as 3.11; all that this machine has when empty.
PYTHONS ?=
# Of the matrix: names of noxfile.py; all when empty.
CELLS ?=
# How long make soak and make programs go on.
SECONDS ?= 1800
# Of make faults: numbers of cases; all when empty.
CASES ?=
# Of make fuzz: names of targets (all when empty), inputs for each, and KEEP=1 to keep those that reach new code.
# SECONDS=60 limits each by time instead.
TARGETS ?=
RUNS ?= 10000000
KEEP ?=
# Of make sim: jobs to simulate, and with how many ranks at most; or SEED=N, one of them; or FAULTS=1, to break the
# protocol and see that it is noticed; or SCALE="8 10000", what negotiation costs so many ranks.
# SEED=N is one program of make programs, too; ACTS="1 4" plays some of its acts.
SEEDS ?= 100000
RANKS ?= 16
SEED ?=
ACTS ?=
FAULTS ?=
SCALE ?=
# Of make torch-suite: numbers of ranks, and patterns of names of tests (all when empty).
NP ?= 2,4
TORCH_TESTS ?=
# Options of benchmarks/compare.py, for example BENCH='--np 4 --only train'. With --full or --quick, libraries.py runs too.
BENCH ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CMAKE := $(BIN)/cmake
# Python compiles a module when it is imported first; most of these never are.
INSTALL := $(PIP) install --quiet --no-compile
CXX_FILES = $(shell find core frameworks tests/core tests/fuzz -name '*.h' -o -name '*.cc')
SYSTEM_PACKAGES := ccache gdb libgloo-dev libmpich-dev libopenmpi-dev mpich munge openjdk-17-jre-headless openmpi-bin \
  openssh-client openssh-server slurm-client slurmctld slurmd

export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
# Images of containers set it, and each of some thousand processes then compiles PyTorch anew: twice the time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv build sdist wheel demo test test-core test-unit test-mp test-tf test-ray test-spark test-jax test-mx test-package matrix faults gpu-test torch-suite soak soak-elastic programs fuzz sim test-full test-arm tsan asan lint format bench site docs test-deps clean

help: ## List these words
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/.tools: requirements/dev.txt scripts/preflight.py
	@command -v $(PYTHON) >/dev/null || { echo "No '$(PYTHON)' here: install Python 3.10 or later, or name one: make PYTHON=..."; exit 1; }
	@$(PYTHON) scripts/preflight.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -r requirements/dev.txt
	@touch $@

$(VENV)/.installed: $(VENV)/.tools pyproject.toml setup.py frameworks/horovod/version.py
	@echo "Installing horovod: if nothing is built yet, this compiles for 2 to 4 minutes on 2 cores."
	$(INSTALL) --no-build-isolation -e .
	@touch $@

$(VENV)/.tensorflow: $(VENV)/.tools requirements/tensorflow.txt requirements/tf-keras.txt
	$(INSTALL) -r requirements/tensorflow.txt
	$(INSTALL) --no-deps -r requirements/tf-keras.txt
	@touch $@

# Packages of others that only some tests use, which are skipped where these cannot be had.
$(VENV)/.front_doors: $(VENV)/.tools requirements/front_doors.txt
	@if $(INSTALL) -r requirements/front_doors.txt; then touch $@; \
	else echo "Going on without what requirements/front_doors.txt lists; its tests are skipped."; fi

$(VENV)/.ray: $(VENV)/.tools requirements/ray.txt
	@if $(INSTALL) -r requirements/ray.txt; then touch $@; \
	else echo "Going on without what requirements/ray.txt lists; its tests are skipped."; fi

$(VENV)/.spark: $(VENV)/.tools requirements/spark.txt
	@if $(INSTALL) -r requirements/spark.txt; then touch $@; \
	else echo "Going on without what requirements/spark.txt lists; its tests are skipped."; fi

$(VENV)/.jax: $(VENV)/.tools requirements/jax.txt
	@if $(INSTALL) -r requirements/jax.txt; then touch $@; \
	else echo "Going on without what requirements/jax.txt lists; its tests are skipped."; fi

venv: $(VENV)/.tools $(VENV)/.front_doors ## Make .venv with the tools and frameworks that the other words use

build: $(VENV)/.installed ## Build horovod and install it, editable, into .venv
	@$(BIN)/python setup.py --quiet build_ext --inplace

sdist: venv ## Pack the sources: dist/horovod-VERSION.tar.gz
	@$(BIN)/python scripts/package.py sdist

wheel: venv ## Build a manylinux wheel for each Python here, into dist/ (PYTHONS=3.11: one)
	@$(BIN)/python scripts/package.py wheels $(PYTHONS)

demo: build ## Train the digits example with 1 and 2 processes, and draw demo/loss.png
	$(BIN)/python scripts/demo.py

TESTS ?= test-core test-unit test-mp test-tf test-ray test-spark test-jax $(if $(SLOW),test-mx)
PYTEST = $(BIN)/python -m pytest $(if $(SLOW),-m 'not full' --durations 40) -q

test: venv ## Run the tests, every group, and end with one table and what failed
	@$(BIN)/python scripts/test_all.py $(TESTS)

# $(1) folder in build/, $(2) sanitizers. Tests of the core need no Python.
define core_tests
	$(CMAKE) -S . -B build/$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DHVD_BUILD_TESTS=ON \
	  -DHVD_BUILD_PYTHON=OFF -DHVD_WERROR=$(WERROR) -DHVD_SANITIZE=$(2) >build/$(1).log || { cat build/$(1).log; exit 1; }
	$(CMAKE) --build build/$(1) $(if $(ONLY),--target test_$(ONLY))
	$(BIN)/ctest --test-dir build/$(1) --output-on-failure -j $(JOBS) $(if $(ONLY),-R '^core\.$(ONLY)$$')
endef

test-core: venv ## Run the core's tests (C++, ranks are threads), or ONLY=config
	@mkdir -p build
	$(call core_tests,core-tests,)

test-unit: build ## Run the Python tests that need one process
	$(PYTEST) tests/unit -n $(TEST_JOBS)

test-mp: build $(VENV)/.front_doors ## Run the tests that start several processes
	$(PYTEST) tests/mp -n $(MP_JOBS) --dist worksteal

# Each file in one process: what it loads before the ranks are forked, and whichever Keras it settles on. By the
# number of their tests, files with few long ones would come last, and one core would wait for the other.
BY_FILE = --dist loadfile --no-loadscope-reorder
TF_TESTS = $(PYTEST) tests/tf -n $(TF_JOBS) $(BY_FILE)

test-tf: build $(VENV)/.tensorflow ## Run the tests of TensorFlow and Keras
	$(TF_TESTS)

test-ray: build $(VENV)/.ray ## Run the tests of horovod.ray, on a cluster of two nodes
	@if $(BIN)/python -c "import ray"; then $(PYTEST) tests/ray -n $(RAY_JOBS) $(BY_FILE); else echo "Skipped: no Ray in $(VENV)"; fi

test-spark: build $(VENV)/.spark ## Run the tests of horovod.spark, on executors of this machine
	@if $(BIN)/python -c "import pyspark" && java -version 2>/dev/null; then \
	  $(PYTEST) tests/spark -n $(SPARK_JOBS) $(BY_FILE) $(SPARK_TESTS); \
	else echo "Skipped: no PySpark in $(VENV), or no Java"; fi

test-jax: build $(VENV)/.jax ## Run the tests of JAX
	@if $(BIN)/python -c "import jax, optax"; then $(PYTEST) tests/jx -n $(TF_JOBS) $(BY_FILE); else echo "Skipped: no JAX in $(VENV)"; fi

# PyTorch, TensorFlow and MXNet in one environment, which must have numpy 1.
test-mx: build ## Run the tests of MXNet, beside the other frameworks in one process
	$(BIN)/nox -s all-numpy1.26

test-package: venv ## Install the sources and a wheel, each in a bare environment, and run two ranks
	@$(BIN)/python scripts/package.py test

matrix: build ## Run the tests of other versions and Pythons (CELLS="..." picks some)
	$(BIN)/nox $(if $(CELLS),-s $(CELLS))

faults: build ## Bring about every fault that one host can show (CASES="1 35" picks some)
	$(BIN)/python tests/faults/run.py $(CASES)

gpu-test: build ## Check and time tensors on the GPUs of this machine (HVD_GPU_RANKS: ranks)
	$(BIN)/python tests/gpu/run.py

torch-suite: build ## Run torch's own tests of torch.distributed, beside gloo (NP, TORCH_TESTS)
	$(BIN)/python tests/torch_suite/run.py --np $(NP) $(foreach test,$(TORCH_TESTS),'$(test)')

soak: build ## Jobs with random faults for SECONDS (1800); counts what must never happen
	$(BIN)/python tests/faults/soak.py --seconds $(SECONDS)

soak-elastic: build ## One elastic job with random faults for SECONDS; counts likewise
	$(BIN)/python tests/faults/elastic_soak.py --seconds $(SECONDS)

programs: build ## Random programs over real processes for SECONDS (or SEED=N); counts likewise
	$(BIN)/python tests/fuzz/programs/run_programs.py $(if $(SEED),--seed $(SEED) $(if $(ACTS),--acts $(ACTS)),--seconds $(SECONDS))

FUZZ_LIMIT = $(if $(filter command environment,$(origin SECONDS)),--seconds $(SECONDS),--runs $(RUNS))

fuzz: venv ## Fuzz every parser of the core, RUNS inputs each (TARGETS="..." picks some)
	$(BIN)/python scripts/fuzz.py $(FUZZ_LIMIT) --jobs $(JOBS) $(if $(KEEP),--keep) $(TARGETS)

sim: venv ## Simulate SEEDS jobs of the negotiation (or SEED=N, FAULTS=1, SCALE="N ...")
	$(BIN)/python scripts/simulate.py --seeds $(SEEDS) --ranks $(RANKS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults) $(if $(SCALE),--scale $(SCALE))

test-full: export HVD_TEST_FULL := 1
test-full: build $(VENV)/.tensorflow $(VENV)/.ray $(VENV)/.spark ## Run everything, the long tests too
	@mkdir -p build
	$(call core_tests,core-tests,)
	$(BIN)/python -m pytest tests/unit tests/mp -m 'full or not full' --timeout 1200 -q
	$(TF_TESTS) -m 'full or not full' --timeout 1200
	$(BIN)/python -m pytest tests/ray -m 'full or not full' --timeout 1200 -q
	$(MAKE) test-spark SPARK_TESTS="-m 'full or not full' --timeout 1200"
	$(MAKE) test-arm

# Debian's packages: g++-aarch64-linux-gnu qemu-user-static.
ARM_TESTS ?= sha256 crc32c topology text positions kernels float8 collective links window arena inbox queue gate member
test-arm: venv ## Run tests of the core for aarch64, emulated (ARM_TESTS picks others)
	@if ! command -v aarch64-linux-gnu-g++ >/dev/null || ! command -v qemu-aarch64-static >/dev/null; then \
	  echo "Skipped: no aarch64-linux-gnu-g++ or no qemu-aarch64-static here"; else \
	  mkdir -p build && \
	  $(CMAKE) -S . -B build/arm -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DHVD_BUILD_TESTS=ON \
	    -DHVD_BUILD_PYTHON=OFF -DHVD_BUILD_TENSORFLOW=OFF -DHVD_BUILD_MXNET=OFF -DHVD_WERROR=$(WERROR) \
	    -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake >build/arm.log && \
	  $(CMAKE) --build build/arm --target $(addprefix test_,$(ARM_TESTS)) && \
	  for test in $(ARM_TESTS); do \
	    $(BIN)/ctest --test-dir build/arm --output-on-failure -Q -R "^core\.$$test$$" || exit 1; done; fi

tsan: venv ## Run the core's tests under ThreadSanitizer
	@mkdir -p build
	$(call core_tests,tsan,thread)

asan: build ## Run the core's tests, then a training, under AddressSanitizer and UBSan
	@mkdir -p build
	$(call core_tests,asan,address$(comma)undefined)
	$(BIN)/python scripts/sanitized_training.py address,undefined

comma := ,

lint: venv ## Check formatting, types and the arrows between layers
	@failed=; check() { name=$$1; shift; echo "$$name:"; "$$@" || failed="$$failed, $$name"; }; \
	check "ruff check" $(BIN)/ruff check .; \
	check "ruff format" $(BIN)/ruff format --check .; \
	check mypy $(BIN)/mypy; \
	check clang-format $(BIN)/clang-format --dry-run -Werror $(CXX_FILES); \
	check layers $(BIN)/python -m pytest tests/unit/test_layers.py -q; \
	test -z "$$failed" || { echo "Failed: $${failed#, }"; exit 1; }

format: venv ## Format everything
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CXX_FILES)

bench: build ## Compare with torch.distributed, a minute (BENCH=--full: 5, with Gloo and MPI)
	$(BIN)/python benchmarks/compare.py --plot build/bench.png $(BENCH)
	$(if $(filter --full --quick,$(BENCH)),$(BIN)/python benchmarks/libraries.py $(BENCH))

$(VENV)/.docs: $(VENV)/.tools requirements/docs.txt
	$(INSTALL) -r requirements/docs.txt
	@touch $@

site: build $(VENV)/.docs ## Build the site of docs/ in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html"

docs: site ## Build the site, check its links, and run its code
	$(BIN)/python -m pytest tests/unit/test_docs.py tests/unit/test_pictures.py tests/mp/test_doc_snippets.py -q
	@if $(BIN)/python -c "import tensorflow" 2>/dev/null; then $(BIN)/python -m pytest tests/tf/test_tf_doc_snippets.py -q; \
	else echo "No TensorFlow in $(VENV): the site lacks its reference, and its code did not run"; fi

test-deps: ## Install optional system packages where root; otherwise say which
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get install -y -qq --no-install-recommends $(SYSTEM_PACKAGES) >/dev/null 2>&1 || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $(SYSTEM_PACKAGES); } >/dev/null 2>&1 || \
	  echo "Optional packages could not be installed, going on without: $(SYSTEM_PACKAGES)"; \
	else echo "Optional: apt-get install $(SYSTEM_PACKAGES)"; fi

clean: ## Remove what was built (.venv and .nox stay)
	rm -rf build dist demo .pytest_cache .ruff_cache .mypy_cache .hypothesis frameworks/*.egg-info
	rm -f frameworks/horovod/_core*.so frameworks/horovod/_gloo.so frameworks/horovod/_mpi_*.so frameworks/horovod/*/_ops.so $(VENV)/.installed
	find . -name __pycache__ -not -path './.venv/*' -not -path './.nox/*' -prune -exec rm -rf {} +
