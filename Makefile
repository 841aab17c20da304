# Every target sets up what it needs in .venv; a second call finds it there and is quick.
PYTHON ?= python3
# Chinese sentences for bench-peers, bench-profile and bench-serve-peer: make bench-peers SOURCE=FILE
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
# pip's errors are shown, its warnings are not
PIP    := $(BIN)/pip install -qq --disable-pip-version-check --constraint constraints.txt
KERNEL_SOURCES := setup.py $(wildcard src/uncurse/models/transformer/native/*.cpp src/uncurse/models/transformer/native/*.h)

SOURCE ?= newstest2020.zh
# How often make soak kills a training run, and repeats the other tests that kill
KILLS  ?= 100
ROUNDS ?= 10
MINUTES ?= 1440

.PHONY: setup demo test test-fast sanitize fuzz soak soak-serve check docs dist bench bench-peers bench-profile bench-serve bench-serve-peer clean

setup: $(READY)

$(VENV)/packages: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "uncurse needs Python 3.11 or newer")'
	@echo "Setting up $(VENV): once, a few minutes …"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) --editable ".[dev]"
	@touch $@

$(READY): $(VENV)/packages $(KERNEL_SOURCES)  # a changed kernel is compiled again, and nothing else is done
	@$(PIP) --no-deps --editable .
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/demo.py

test: $(READY)
	-@$(BIN)/uncurse models get opus-mt-zh-en  # without it the tests that compare with other toolkits are skipped
	$(BIN)/pytest --numprocesses 2

test-fast: $(READY)  # under two minutes, for daily work
	HYPOTHESIS_PROFILE=quick $(BIN)/pytest --numprocesses 2 -m "not slow"

# Kills at random moments, again and again; UNCURSE_SEED repeats the moments of a run
soak: $(READY)
	UNCURSE_KILLS=$(KILLS) $(BIN)/pytest -s tests/system/test_kills.py
	UNCURSE_ROUNDS=$(ROUNDS) $(BIN)/pytest -ra tests/system/test_cluster.py tests/system/test_study.py -k killed

soak-serve: $(READY)  # the service under load for a day; MINUTES=10 for less
	$(BIN)/python benchmarks/serving.py memory --minutes $(MINUTES)

# The kernels under AddressSanitizer and UBSan, which Python itself must be started with
SANITIZED := build/sanitized
SANITIZERS := -fsanitize=address,undefined -fno-sanitize-recover=undefined
ASAN   := $(shell $(CXX) -print-file-name=libasan.so)
sanitize: $(if $(wildcard $(ASAN)),$(SANITIZED)/ready)
ifeq ($(wildcard $(ASAN)),)
	@echo "$(CXX) has no sanitizer runtime here: the kernels are not tested with it"
else
	UNCURSE_KERNEL_FOLDER=$(SANITIZED)/uncurse/models/transformer/native OMP_NUM_THREADS=1 \
	LD_PRELOAD="$(ASAN) $(shell $(CXX) -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
	$(BIN)/pytest -q -p no:cacheprovider tests/unit/test_native_kernels.py tests/unit/test_native.py
endif

$(SANITIZED)/ready: $(READY)
	CXXFLAGS="$(SANITIZERS)" LDFLAGS="$(SANITIZERS)" $(BIN)/python setup.py -q build_ext \
	--build-lib $(SANITIZED) --build-temp $(SANITIZED)/temp --parallel 2
	@touch $@

check: $(READY) docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)  # the site, in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(READY)  # wheel and sdist, in dist
	$(BIN)/python -m build

fuzz: $(READY)  # FUZZ_MINUTES=10
	PYTHONPATH=tests $(BIN)/python -m fuzz

bench: $(READY)
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/judging.py
	$(BIN)/python benchmarks/decoding.py
	$(BIN)/python benchmarks/training.py

bench-peers: $(READY)  # fifteen minutes
	$(BIN)/python benchmarks/peers.py $(SOURCE)

bench-profile: $(READY)  # the engine's share of the time, and memory
	$(BIN)/python benchmarks/peers.py $(SOURCE) --profile

bench-serve: $(READY)
	$(BIN)/python benchmarks/serving.py

bench-serve-peer: $(READY)  # one client, beside CTranslate2
	$(BIN)/python benchmarks/serving_peer.py $(SOURCE)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
