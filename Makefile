# make demo   see Weft work           make build   compile the extensions
# make stub   write src/weft/_*.pyi anew after cpp/bindings changed
#
# make check        2 minutes: lint, types and the tests that start no jobs, with few random examples
# make test         10 minutes on two cores: what a change has to pass; .ci/run runs it
# make explore [SECONDS=60] [SEED=...]    fresh random examples for a bounded time; .ci/run runs it too
# make test-all     an hour and more: make test, and all that follows
# make test-slow    long matrices, and twice as many random examples again
# make sanitize [SANITIZER=thread] [TESTS=...]    the runtime's tests, watched for memory errors or data races
# make torch-suite [SHARD=1/4] [SUITE=...]    PyTorch's own tests of its backends, on weft beside gloo
# make frameworks   Lightning, Accelerate, Transformers, DeepSpeed and torchrun on backend weft, beside gloo
# make peers        weft bench beside MPICH and oneCCL, which it installs in build/peers
# make executors    sweeps on real clusters of Dask and Ray, on loopback
# make docs         the documentation site, in build/site; broken links fail
# make claims [PAPERS="ace dear"]    make every claim of the papers anew, and write docs/papers/index.md
# make notebooks    run the notebooks of examples/notebooks in Jupyter, and store their outputs
# make package      build wheel and sdist, and try both in clean environments; they are left in build/package
#
# A fresh clone needs nothing first: each target makes what it lacks, in .venv and build.

PYTHON ?= python3
EXTRAS ?= graph,torch,mpi,notebooks,studio,dev
JOBS ?= 2
# Test processes: twice the cores, because tests of jobs wait longer than they compute.
WORKERS ?= 4
SANITIZER ?= address
TESTS ?= tests/runtime tests/faults tests/soak
SHARD ?= 1/1
SUITE ?=
SECONDS ?= 60
SEED ?=
PAPERS ?=

# make sanitize has its own of both, so that the usual ones stay as they are.
VENV := .venv
BUILD := build
DEFINE :=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
comma := ,
# The stamps lie in $(BUILD): they are gone when it is, and older than .venv when that is new.
INSTALLED := $(BUILD)/installed-$(subst $(comma),-,$(EXTRAS)).stamp
BUILT := $(BUILD)/built.stamp
COMPARE := $(BIN)/weft compare
# The packages that extras of pyproject.toml name.
LIST_EXTRAS := import sys, tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
	print(*(one for name in sys.argv[1:] for one in extras[name]))
packages_of = $$($(PYTHON) -c '$(LIST_EXTRAS)' $(1))
# A process that dies ends the run and is named: one in its place would confuse the groups of --dist loadgroup.
PYTEST := $(BIN)/python -m pytest -q --dist loadgroup --max-worker-restart=0 --durations=10 -n $(JOBS)
MAKEFLAGS += --no-print-directory
# Folders of tests/ whose tests start no jobs, and what in them takes longest, because it runs mypy, pytest or the fuzzer.
CHECKED := algorithms bounds export packets planning schedule simulation topology training unit verification
UNCHECKED := test_typing test_python_blocks test_fuzz test_skips

# Without bytecode every process of the tests, and there are thousands, compiles Weft and its tests anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install build demo check test test-all test-tools test-suite test-slow explore package lint types stub \
	sanitize torch-suite frameworks executors peers docs claims notebooks clean
.DELETE_ON_ERROR:

install: $(BUILT)

build: $(BUILT)

$(VENV)/pyvenv.cfg:
	@PYTHON=$(PYTHON) tools/system-packages
	@echo "install: making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# An editable install remembers its packages, so a new one means installing again.
$(INSTALLED): pyproject.toml constraints.txt $(VENV)/pyvenv.cfg $(wildcard src/weft/*/__init__.py src/weft/*/*/__init__.py)
	@mkdir -p $(@D)
	@echo "install: build tools"
	@$(PIP) install -c constraints.txt nanobind scikit-build-core
	@echo "install: weft[$(EXTRAS)], editable: downloads packages, then compiles for 1 to 2 minutes"
	@$(PIP) install -c constraints.txt --no-build-isolation --config-settings=build-dir=$(BUILD)/ext \
		--config-settings=cmake.define.WEFT_WERROR=ON $(DEFINE) -e ".[$(EXTRAS)]"
	@touch $@

# New extensions are moved into place, so that a process that runs the old ones keeps them.
$(BUILT): $(INSTALLED) CMakeLists.txt $(wildcard cpp/* cpp/*/*)
	@echo "build: weft._core, weft._runtime"
	@cmake --build $(BUILD)/ext --parallel $(JOBS)
	@site=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/weft && \
	for so in $(BUILD)/ext/_*.so; do \
		cp $$so $$site/.new && mv $$site/.new $$site/$$(basename $$so); \
	done
	@touch $@

demo: $(BUILT)
	@PYTHON=$(PYTHON) tools/system-packages demo
	@mkdir -p build/demo
	@echo "demo: every all-reduce on an 8x8 torus"
	@$(COMPARE) 'torus:8x8@bw=16GB/s,lat=150ns' --size 64MiB
	@echo "demo: every all-reduce on three uneven hosts"
	@$(COMPARE) 'hosts:8,4,2@intra=100GB/s,uplink=25GB/s/12GB/s/6GB/s' --size 64MiB
	@echo "demo: a drawing, build/demo/torus.svg"
	@$(BIN)/weft topology torus:4x4 --svg build/demo/torus.svg
	@echo "demo: a plan for a torus with a dead cable, build/demo/plan.weft"
	@$(BIN)/weft plan 'torus:4x4@bw=16GB/s,lat=150ns+fail=5-6' --time-limit 10 -o build/demo/plan.weft
	@echo "demo: four real processes on this machine, beside Gloo"
	@$(BIN)/weft bench -R 4 -b 64K -e 16M -f 16 -r 3 --against gloo
	@problem=$$($(BIN)/weft lab check 2>&1 > /dev/null); case $$? in \
	0) \
		echo "demo: real bytes over an emulated torus, beside Gloo"; \
		$(BIN)/weft lab bench torus:2x4@bw=20Mbit/s --size 1MB --against gloo -r 3 ;; \
	2) echo "demo: left out: real bytes over an emulated torus (weft lab bench); $${problem#weft: error: }" ;; \
	*) echo "$$problem" >&2; exit 1 ;; \
	esac

# What only tests need. Not of make check, whose tests start no jobs and no browser.
test-tools:
	@PYTHON=$(PYTHON) tools/system-packages tests

check: $(BUILT) lint types
	@echo "check: pytest, no jobs, few examples"
	@WEFT_EXAMPLES=0.1 $(PYTEST) -m "not slow" $(addprefix tests/,$(CHECKED)) \
		$(patsubst %,--ignore=tests/unit/%.py,$(UNCHECKED))

# Tests wait for processes now and then, which leaves time for mypy.
test: test-tools
	@began=$$(date +%s) && $(MAKE) install && built=$$(date +%s) && \
	$(MAKE) lint && $(MAKE) --jobs=2 types test-suite && \
	echo "test: $$((built - began)) s to install and build, $$(($$(date +%s) - built)) s to test"

test-suite: $(BUILT) test-tools
	@echo "test: pytest"
	@$(PYTEST) -n $(WORKERS) -m "not slow"

test-slow: $(BUILT) test-tools
	@echo "test-slow: pytest, long matrices and more examples"
	@WEFT_EXAMPLES=2 $(PYTEST) -n $(WORKERS) -o timeout=900 -o faulthandler_timeout=1200 -m "slow or hypothesis"

# Apart from make test: it compiles Weft twice more, and downloads what it needs.
package: $(BUILT)
	@echo "package: pytest tests/packaging"
	@$(BIN)/python -m pytest -q -o faulthandler_timeout=3600 -m packaging tests/packaging
	@echo "package: built"
	@find build/package -type f | sort

# Each part says how long it took. All of them run, also behind one that fails. Two at a time are those that install,
# compile and start few processes, one thing after the other, so that one of two processors would be idle.
ALONE := test test-slow sanitize sanitize-thread torch-suite peers
BESIDE_ANOTHER := package frameworks executors docs
test-all:
	@code=0; $(MAKE) --keep-going $(ALONE:%=timed-%) || code=1; \
	$(MAKE) --keep-going --jobs=2 --output-sync=target $(BESIDE_ANOTHER:%=timed-%) || code=1; exit $$code

timed-%:
	@began=$$(date +%s); code=0; $(MAKE) $* || code=1; \
	echo "test-all: $*: $$(($$(date +%s) - began)) s$$([ $$code = 0 ] || echo ', FAILED')"; exit $$code

sanitize-thread:
	@$(MAKE) sanitize SANITIZER=thread

explore: $(BUILT)
	@$(BIN)/python tools/explore.py --seconds $(SECONDS) $(addprefix --seed ,$(SEED))

lint: $(BUILT)
	@echo "lint: ruff"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@echo "lint: clang-format"
	@$(BIN)/clang-format --dry-run -Werror cpp/*/*.[ch]pp

types: $(BUILT)
	@echo "types: mypy --strict, and the jobs of tests"
	@$(BIN)/mypy --strict --no-error-summary src tests/unit/typed/user_script.py
	@$(BIN)/mypy --config-file tests/mypy.ini --no-error-summary tests/*/jobs

stub: $(BUILT)
	@echo "stub: src/weft/_core.pyi, src/weft/_runtime.pyi"
	@for name in _core _runtime; do \
		$(BIN)/python -m nanobind.stubgen -q -m weft.$$name -o src/weft/$$name.pyi || exit 1; \
	done

# Without torch: the tests that need it are left out, and tools/sanitize says which others and why.
sanitize: test-tools
	@$(MAKE) build VENV=build/$(SANITIZER)/venv BUILD=build/$(SANITIZER) EXTRAS=graph,mpi,dev \
		DEFINE=--config-settings=cmake.define.WEFT_SANITIZE=$(SANITIZER)
	@echo "sanitize: $(SANITIZER): pytest $(TESTS)"
	@WORKERS=$(WORKERS) tools/sanitize $(SANITIZER) build/$(SANITIZER) $(TESTS)

# What these tests need besides lies in an environment of their own, whose Python sees the packages of the usual one too:
# to install torch and to compile Weft once more would take longer than the tests. Not a part of make test: 300 MB each.
SEE_USUAL := import sysconfig; print("import site; site.addsitedir({!r})".format(sysconfig.get_path("platlib")))
build/frameworks/installed.stamp: LACKED := frameworks
build/executors/installed.stamp: LACKED := dask ray
build/frameworks/installed.stamp build/executors/installed.stamp: build/%/installed.stamp: pyproject.toml constraints.txt \
		| $(BUILT)
	@echo "$*: installing in build/$*/venv what $(VENV) lacks"
	@$(PYTHON) -m venv --without-pip build/$*/venv
	@$(BIN)/python -c '$(SEE_USUAL)' > $$(echo build/$*/venv/lib/python*/site-packages)/usual.pth
	@$(PIP) --python build/$*/venv install --no-build-isolation -c constraints.txt $(call packages_of,$(LACKED))
	@touch $@

frameworks: build/frameworks/installed.stamp
	@echo "frameworks: pytest tests/frameworks"
	@build/frameworks/venv/bin/python -m pytest -q -o faulthandler_timeout=900 -n $(JOBS) tests/frameworks

executors: build/executors/installed.stamp
	@echo "executors: pytest tests/executors"
	@build/executors/venv/bin/python -m pytest -q -o faulthandler_timeout=900 tests/executors

# As docs/bench.md has it: each in an environment of its own, 2.2 GB in all, because both bring a libmpi.so.12. The
# tests run in the usual environment, and fail if a peer that is named cannot run.
PEERS := $(CURDIR)/build/peers
MPICH := mpich
ONECCL := oneccl-devel==2021.17.2 impi-rt==2021.17.2 intel-sycl-rt==2025.3.2
build/peers/%/installed.stamp: $(VENV)/pyvenv.cfg
	@echo "peers: installing $(PACKAGES) in build/peers/$*"
	@$(PYTHON) -m venv build/peers/$*
	@build/peers/$*/bin/python -m pip --disable-pip-version-check -qq install $(PACKAGES)
	@touch $@

build/peers/mpich/installed.stamp: PACKAGES := $(MPICH)
build/peers/oneccl/installed.stamp: PACKAGES := $(ONECCL)

peers: $(BUILT) build/peers/mpich/installed.stamp build/peers/oneccl/installed.stamp
	@echo "peers: pytest tests/bench"
	@WEFT_MPICH=$(PEERS)/mpich WEFT_ONECCL=$(PEERS)/oneccl $(BIN)/python -m pytest -q -n 0 tests/bench -k "mpich or oneccl"

# Docstrings are read and not run, so Weft itself is not installed here: only what its extra docs names.
DOCS := build/docs/venv
build/docs/installed.stamp: pyproject.toml constraints.txt
	@echo "docs: installing the extra docs in $(DOCS)"
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip --disable-pip-version-check -qq install -c constraints.txt \
		$(call packages_of,docs)
	@touch $@

docs: build/docs/installed.stamp
	@echo "docs: mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 PATH=$(DOCS)/bin:$$PATH $(DOCS)/bin/mkdocs build --quiet --strict
	@echo "docs: open build/site/index.html"

# Apart from make test: it takes minutes, and judges the installed torch as much as Weft. docs/torch-suite.md
torch-suite: $(BUILT)
	@echo "torch-suite: shard $(SHARD)"
	@PYTHONPATH=tools $(BIN)/python -m torch_suite --shard $(SHARD) \
		--json build/torch-suite/weft-$(subst /,-of-,$(SHARD)).json $(SUITE)

# Some minutes; each study is stored when it is done. Commit first: the stored results name the commit that made them.
claims: $(BUILT)
	@$(BIN)/python tools/remake_claims.py $(PAPERS)

# They are stored with their outputs: people read them on the web.
notebooks: $(BUILT)
	@$(BIN)/python tools/run_notebooks.py

clean:
	@echo "clean: build and caches (.venv stays)"
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
