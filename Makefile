# Everything runs from here: make help. LAB_NAME and LAB_INDEX pick another lab beside the first.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
INVENTORY ?= inventories/lab
LIMIT ?= ana-ml2

.PHONY: help
help: ## this list
	@echo "Two commands: make demo, make test. The rest:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## .venv with everything a controller needs
	@python3 tools/setup.py

.PHONY: demo
demo: setup ## the lab, site.yml on it, and what came of it
	@$(BIN)/python tools/demo.py

.PHONY: demo-real
demo-real: setup ## the same with real vLLM on the CPU and a small model that really sees
	@$(BIN)/python tools/demo.py --real

.PHONY: test
test: ## every suite; SUITES="unit molecule/site" for some
	@python3 tools/setup.py --older
	@$(BIN)/python tools/suites.py $(SUITES)

.PHONY: lint
lint: setup ## static checks; CHECKS="ruff role-docs" for some
	@$(BIN)/python tools/lint.py $(CHECKS)

.PHONY: format
format: setup ## bring Python into shape, and what follows from argument_specs.yml
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet . && $(BIN)/python tools/role_docs.py

.PHONY: unit
unit: setup ## unit tests of the core, the modules and the tools
	@$(BIN)/python -m pytest -q tests/unit

.PHONY: molecule
molecule: setup ## every Molecule scenario; SCENARIO=site for one
	@$(BIN)/python tools/suites.py $(if $(SCENARIO),molecule/$(SCENARIO),molecule)

.PHONY: lab-up
lab-up: setup ## lab hosts, registry and engine images
	@lab/lab up

.PHONY: lab-down
lab-down: ## remove the lab's containers, volumes and network; images stay
	@lab/lab down

.PHONY: bench
bench: setup ## what a run costs, as ratios; needs the lab
	@$(BIN)/python tools/bench_collections.py
	@set -e; for one in benchmarks/*.py; do echo "== $$one"; $(BIN)/python $$one; done

.PHONY: clean
clean: ## end and remove exactly what these started and made
	@lab/lab clean
	@rm -rf .venv .venv-2.19 .venv-3.9 .cache .pytest_cache .mypy_cache .ruff_cache
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
