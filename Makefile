# Between the Nodes. Each target is a line or two of standard tools; VENV may name any environment.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
export PATH := $(abspath $(BIN))$(if $(filter Windows_NT,$(OS)),;,:)$(PATH)
export JUPYTER_CONFIG_PATH := $(abspath .jupyter)

$(VENV)/.installed: requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@
