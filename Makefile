# The targets people and CI use. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# brokers mostly wait: five workers on two cores, a file each; the longest groups first, unit tests
# fill up the end. With four, the cores were idle for a quarter of the time.
WORKERS ?= 5
# with byte code kept: else each worker rewrites every test file's asserts, and each eoctl compiles
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore tests/style --durations-file=build/test-durations.txt

.PHONY: help install lock check format test test-long test-tools mutants trust trust-long bench soak dist binary deb pex version release sbom audit man docs demo schemas figures size screenshots test-fresh clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "eoctl needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=/path/to/python3.11." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements-uv.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --compile-bytecode -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $(STAMP)

install: $(STAMP) ## make .venv with everything in it; .venv/bin/eoctl is the tool

lock: install ## resolve requirements.lock again from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	  pyproject.toml -o requirements.lock
	echo uv==$$($(BIN)/uv --version | cut -d' ' -f2) | $(BIN)/uv pip compile --quiet --universal --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" - -o requirements-uv.lock
	printf 'cyclonedx-bom\nlibfaketime\npex\npip-audit\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" - -o requirements-supply.lock

check: install ## format, lint, types, import contracts, spelling, the style of the house
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/codespell eoctl recovery tui spark_jobs benchmarks docs README.md
	$(BIN)/pytest -p no:xdist tests/style

format: install ## rewrite the code in the one style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# in a fresh clone each of five workers would compile all tests, for a minute of both cores: two do it
COMPILED := $(VENV)/.compiled
$(COMPILED): | install
	@printf 'tests/%s\n' unit kafka | PYTHONDONTWRITEBYTECODE= xargs -P 2 -n 1 \
	  $(BIN)/pytest -p no:xdist --collect-only -qq > /dev/null || true # what is wrong, the tests say
	@touch $@

test: install | $(COMPILED) ## all tests; brokers come from `eoctl lab` (WORKERS=5: how many run side by side)
	$(PYTEST)

test-long: install ## the full counts, all seeds, other Kafka versions; PART=name: a part of them, at most an hour
	EOCTL_TEST_SHARE=1.0 $(PYTEST) --tried-file docs/tried.txt -m "not tools" $(if $(PART),--part $(PART))

test-tools: install ## promtool, Prometheus, systemd, man, a browser, an agent, walks in tmux: what is missing here is printed as NOT RUN
	$(BIN)/pytest -p no:xdist --tried-file docs/tried.txt -m tools tests/tools

dist: install ## the wheel and the sdist, in dist/
	rm -rf dist
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist .

binary: install ## eoctl with its Python in one file, dist/eoctl-linux-*; DEBIAN=bullseye: built there, for older hosts
	$(BIN)/python -m release.binary $(if $(DEBIAN),--debian $(DEBIAN))

deb: install ## a Debian package of what `make binary` packed, dist/eoctl_*.deb
	$(BIN)/python -m release.deb

pex: install ## dist/eoctl.pex, for Linux hosts with a Python: wheels of each minor version in it
	$(BIN)/python -m release.pex

version: install ## write VERSION=1.2.3 where the version stands, and date what is unreleased
	$(BIN)/python -m release.version $(VERSION)

release: install ## all that a version is published as, in dist/ (URL=where it will be; DEBIAN=: without the old Debian)
	$(BIN)/python -m release.all $(if $(filter undefined,$(origin DEBIAN)),,--debian '$(DEBIAN)') $(if $(URL),--url $(URL))

sbom: install ## dist/eoctl-all.cdx.json: what an install with all extras brings (CycloneDX)
	$(BIN)/python -m release.sbom

audit: install ## look for advisories about the locked packages (pip-audit); where nobody answers it says so
	$(BIN)/python -m release.audit

man: install ## the man page, build/man/eoctl.1, from the commands
	@$(BIN)/python -m docs.man build/man/eoctl.1

mutants: install ## change one place of a rule at a time: do its tests notice? (MUTANTS="--of recovery.diagnose.case --all")
	$(BIN)/python -m tests.mutants $(MUTANTS)

trust: install ## the scorecard: what is held to, what was tried for it, how often (LINE=9: one line)
	$(BIN)/python -m tests.trust $(LINE:%=--line %)

trust-long: install ## the scorecard with the full counts, for hours; writes docs/trust.md (LINE="9 12": a part, at most an hour a line)
	$(BIN)/python -m tests.trust --long $(LINE:%=--line %)

bench: install ## speed and memory, beside the peers, as ratios
	$(BIN)/python -m benchmarks

soak: install ## memory and open files of dashboard, exporter and check beside a busy cluster, 20 minutes (MINUTES=2)
	$(BIN)/python -m benchmarks.soak $(MINUTES)

demo: install ## start a real Kafka, break it, look at it through eoctl
	$(BIN)/eoctl lab demo

schemas: install ## write docs/schemas from the row models, and docs/commands.md from the commands
	$(BIN)/python -m docs.generate_schemas
	$(BIN)/python -m docs.commands

figures: install ## what pages have from the code: the drawing of the rooms, doctor's tables
	$(BIN)/python -m docs.house figures

docs: install ## the site, build/site/index.html, from docs/ and README
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

size: install ## lines of code per room
	@$(BIN)/python -m docs.house size

screenshots: install ## pictures of the dashboard for README and docs
	$(BIN)/python -m docs.screenshots

test-fresh: ## try `make demo` and `make test` in a fresh clone with empty caches
	bash tests/fresh_clone.sh

clean: ## remove .venv
	rm -rf $(VENV)
