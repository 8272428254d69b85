# The whole service on one machine. `make help` lists what there is; README.md tells the story.
#
# PYTHON=path   the Python, 3.11 or later, that environments are made with
# RUNTIME=scripted   demo, reappraise and up: a stand-in instead of SGLang, for a quick look
# PORT=n             the same: another port
# FLEET=reappraising   demo and up: that shipped fleet; FLEET=path: a fleet file, whose models are real ones
# MINUTES=n SEED=n   soak: how long, and which faults

# where it is set, each start would compile all modules anew: seconds for the service, a quarter of a minute for SGLang
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup application sglang demo reappraise up test slow chaos soak check bench samples lock clean

NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
  if $$python $(NEW_ENOUGH) 2>/dev/null; then echo $$python; break; fi; done)
RUNTIME ?= sglang
MINUTES ?= 10
UV ?= uv

BIN := .venv/bin
STACK := --runtime $(RUNTIME) $(if $(FLEET),--fleet $(FLEET)) $(if $(PORT),--port $(PORT))
ENVIRONMENTS := application $(if $(filter scripted,$(RUNTIME)),,sglang)
LOCK := $(UV) pip compile --quiet --generate-hashes --python-version 3.11 --no-annotate --custom-compile-command "make lock"
LOCK_SGLANG := $(LOCK) --no-deps --python-platform x86_64-manylinux_2_34

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## everything that the rest needs: .venv, and SGLang with its models in .assizes (RUNTIME=scripted: .venv alone)
	@$(MAKE) --no-print-directory -j2 $(ENVIRONMENTS)

application sglang:
	@test -n "$(PYTHON)" || { echo "Assizes needs Python 3.11 or later and finds none; PYTHON=path names one" >&2; exit 1; }
	@$(PYTHON) $(NEW_ENOUGH) || { echo "Assizes needs Python 3.11 or later; $(PYTHON) is older" >&2; exit 1; }
	@$(PYTHON) -m embedded install $@

demo: setup ## judge the shipped sample on real parts, show the report, receive the webhook, stop (RUNTIME= FLEET= PORT=)
	@$(BIN)/python -m embedded demo $(STACK)

reappraise: setup ## write reappraisals of the shipped scenarios, have a committee choose, compare, show the report (RUNTIME= PORT=)
	@$(BIN)/python -m embedded reappraise $(STACK)

up: setup ## the same parts, left running; prints the URL and where the key is; Ctrl-C stops it (RUNTIME= FLEET= PORT=)
	@$(BIN)/python -m embedded up $(STACK)

test: setup ## every test but the slow ones, those with a real SGLang too
	@$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

slow: setup ## the tests that `make test` leaves out
	@$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

chaos: setup ## the whole fault suite: real processes killed, stopped and starved (tests/chaos/README.md); under 20 minutes
	@$(BIN)/python -m pytest -n 3 --dist loadgroup -m chaos

soak: application ## MINUTES of random faults under load, from a printed SEED; every job is checked at the end
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

bench: application ## what the service itself costs, with a runtime that costs nothing; then what a large job costs the others
	@$(BIN)/python -m embedded bench
	@$(BIN)/python -m embedded shares

samples: application ## what stopping samples early saves and how often it changes a winner, with a judge of known preferences
	@$(BIN)/python -m embedded samples

check: application ## format, lint, types and import rules
	@$(BIN)/python -m ruff format --check
	@$(BIN)/python -m ruff check
	@$(BIN)/python -m mypy
	@$(BIN)/lint-imports

lock: ## resolve the lock files anew (needs uv; pyproject.toml and embedded/sglang_cpu/*.in say what goes in)
	$(LOCK) --universal --fork-strategy fewest pyproject.toml -o requirements.lock
	$(LOCK) --universal --fork-strategy fewest pyproject.toml --group dev -o requirements-dev.lock
	$(LOCK_SGLANG) embedded/sglang_cpu/requirements.in -o embedded/sglang_cpu/requirements.lock
	$(LOCK_SGLANG) embedded/sglang_cpu/torch_cuda.in -o embedded/sglang_cpu/torch_cuda.lock

clean: ## remove what make made: environments, models, data, caches
	rm -rf .venv .assizes .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
