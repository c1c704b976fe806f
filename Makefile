# A fresh machine needs only make, and Python 3.11 or newer with venv and pip. Everything else is installed into .venv,
# from the pinned and hashed lists in requirements/, and again only when one of those lists changes.

ifndef PYTHON
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
endif

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# pip prints errors only; in a terminal it also shows the steps of a build, on standard output. Python compiles what it
# imports, which is a small part of what the packages contain.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-input --no-deps --no-compile --quiet --progress-bar off
CLIENTS := tests/identity/clients tests/protocols/a2a/clients tests/protocols/agui/clients tests/protocols/agui/front_ends tests/protocols/aisdk/clients tests/protocols/blade/clients tests/protocols/mcp/clients tests/protocols/openai/clients
CONSOLE := src/dragoman/console/.built
CODE := src tests tools $(wildcard bench examples)

# Tests of a file share their setup, so a file runs in one worker; ARGS="-n 0" runs everything in one process. Files keep
# their order: sorted by the number of tests, the few long ones of the crash suite would come last and run alone.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder

# The tests start hundreds of servers, each of which would compile the code without its bytecode.
unexport PYTHONDONTWRITEBYTECODE

# make run HOST=… PORT=… DATA=… EXTRAS="models mcp" ARGS="app.py --no-auth"
HOST ?= 127.0.0.1
PORT ?= 8000

.PHONY: help run test check ready static format bench lock docs pictures release clean clients console
.DELETE_ON_ERROR:

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

run: $(INSTALLED)-run $(EXTRAS:%=$(INSTALLED)-%) $(INSTALLED)-dragoman console ## serve the embedded model on 127.0.0.1:8000
	@exec $(BIN)/dragoman serve --first-key --host $(HOST) --port $(PORT) $(if $(DATA),--data $(DATA)) $(ARGS)

test: ready ## format, lint, types and all tests (ARGS="…" for pytest, FULL=1 for the long form of campaigns)
	$(call TESTS_AND_TYPES,)

check: ready ## the same without the slow tests, in under two minutes
	$(call TESTS_AND_TYPES,-m "not slow")

# The type checker takes more than a minute of one core in a fresh clone, so it runs beside the tests. If it finds a
# mistake, it interrupts them.
define TESTS_AND_TYPES
@echo "mypy $(CODE) &"; echo "pytest $(PARALLEL) $(1) $(ARGS)"; rm -f $(VENV)/pytest.pid; \
{ $(BIN)/mypy $(CODE) >$(VENV)/mypy.log 2>&1 || \
	{ echo; cat $(VENV)/mypy.log; kill -INT $$(cat $(VENV)/pytest.pid) 2>/dev/null; false; }; } & types=$$!; \
sh -c 'echo $$$$ >$(VENV)/pytest.pid; exec "$$@"' sh $(BIN)/python -m pytest $(PARALLEL) $(1) $(ARGS); status=$$?; \
wait $$types && tail -1 $(VENV)/mypy.log || { echo "mypy failed"; status=1; }; exit $$status
endef

# pip and npm take about a minute each, mostly on one core.
ready: $(INSTALLED)-console
	@$(MAKE) --no-print-directory clients console & clients=$$!; \
	$(MAKE) --no-print-directory static; status=$$?; wait $$clients; exit $$status

static: $(INSTALLED)-test $(INSTALLED)-dragoman
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

format: $(INSTALLED)-test ## format the code as `make check` expects it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED)-test $(INSTALLED)-dragoman ## run the benchmarks and print the table of docs/performance.md
	$(BIN)/python -m bench $(ARGS)

lock: $(INSTALLED)-venv ## update requirements/ (ARGS=--upgrade selects the newest versions)
	$(BIN)/python tools/lock.py $(ARGS)

docs: $(INSTALLED)-run $(INSTALLED)-docs $(INSTALLED)-dragoman ## build the documentation site in build/site
	$(BIN)/python tools/docs_site.py

pictures: $(INSTALLED)-test $(INSTALLED)-docs $(INSTALLED)-dragoman console ## make the pictures of docs/pictures with Chromium
	$(BIN)/python -m tools.pictures $(ARGS)

release: $(INSTALLED)-run $(INSTALLED)-release $(INSTALLED)-dragoman console ## build and check a release in dist/ (ARGS=--tag tags the commit)
	$(BIN)/python tools/release.py $(ARGS)

console: $(INSTALLED)-venv ## build the web console if it has changed, with its own Node
	@$(MAKE) --silent --no-print-directory $(CONSOLE) || \
		echo "the console could not be built: the server runs without it, and its front page explains what to do" >&2

clients: $(INSTALLED)-console ## install the official clients; without them their tests are skipped
	@for folder in $(CLIENTS); do \
		stamp="$(CURDIR)/$$folder/node_modules/.installed"; \
		test -e "$$stamp" -a "$$stamp" -nt $$folder/package-lock.json || \
		{ echo "installing the official clients in $$folder"; cd "$(CURDIR)/$$folder" && \
		PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --ignore-scripts --no-audit --no-fund --silent && touch "$$stamp"; } || \
		echo "the clients could not be installed: their tests are skipped"; \
		cd "$(CURDIR)"; done
	@$(BIN)/python tools/blade_kit.py || echo "the client could not be installed: its tests are skipped"

clean: ## remove generated files; keeps the server's data
	rm -rf $(VENV) build dist src/*.egg-info src/dragoman/console web/node_modules .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests tools $(wildcard bench examples) -name __pycache__ -type d -prune -exec rm -rf {} +

# --- installing -------------------------------------------------------------------------------------------------------

$(INSTALLED)-venv:
	@test -n "$(PYTHON)" || { \
		echo "Dragoman needs Python 3.11 or newer, but found: $$(python3 --version 2>&1 || echo none)." >&2; \
		echo "Install it, or specify its path: make PYTHON=/path/to/python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Dragoman needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; exit 1; }
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { \
		echo "Python's venv module does not work; on Debian and Ubuntu, install the package python3-venv." >&2; exit 1; }
	@$(PIP) --require-hashes -r requirements/pip.txt || echo "pip was not updated: this one may take longer" >&2
	@touch $@

# One list at a time, even with `make -j`: concurrent pips corrupt the environment.
$(INSTALLED)-%: requirements/%.txt | $(INSTALLED)-venv
	@test $* = console || \
		echo "installing requirements/$*.txt ($$(grep -c '^[a-z0-9]' $<) packages, with verified hashes)"
	@$(PIP) --require-hashes -r $<
	@touch $@

$(CONSOLE): $(shell find web -name node_modules -prune -o -type f -print) | $(INSTALLED)-console
	@echo "building the console"
	@$(BIN)/python tools/build_backend.py

# After the lists, because the build uses the setuptools that they pin.
$(INSTALLED)-dragoman: pyproject.toml | $(INSTALLED)-venv
	@$(PIP) --no-build-isolation --editable . >/dev/null
	@touch $@

.NOTPARALLEL:
