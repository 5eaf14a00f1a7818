.PHONY: setup
setup: ## .venv with everything a controller needs
	@python3 tools/setup.py
