# Between the Nodes. `make read` and `make test` install what they need into VENV (any environment will do).
VENV ?= .venv
PYTHON ?= python3
WINDOWS := $(filter Windows_NT,$(OS))
BIN := $(VENV)/$(if $(WINDOWS),Scripts,bin)
INSTALLED := $(VENV)/.between-the-nodes
export PATH := $(abspath $(BIN))$(if $(WINDOWS),;,:)$(PATH)
export JUPYTER_CONFIG_PATH := $(abspath .jupyter)

.PHONY: read test bench exercises chapters grade browser lock clean

read: $(INSTALLED)  ## open the book in JupyterLab
	python -m classroom.prepare
	jupyter lab $(LAB)

test: $(INSTALLED)  ## everything CI runs: lint, notebooks, answer bank, grading, browser
	ruff check
	ruff format --check
	pytest $(PYTEST)

bench: $(INSTALLED)  ## measure grading and running against the stock tools (twenty minutes)
	python tests/bench.py $(BENCH)

grade: $(INSTALLED)  ## score your own answers, or with SUBMISSIONS=folder those of others
	python -m classroom.grade $(if $(SUBMISSIONS),"$(SUBMISSIONS)") $(if $(UNFENCED),--unfenced)

exercises: $(INSTALLED)  ## make exercises/ from solutions/
	python -m classroom.release

chapters: $(INSTALLED)  ## run every chapter and save its outputs
	jupyter nbconvert --to notebook --execute --inplace chapters/*.ipynb
	python -m classroom.chapter_map

browser: $(INSTALLED)  ## a Chromium for the browser tests, where the machine has none
	playwright install --with-deps chromium

lock:  ## compile requirements.txt from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --group test --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --custom-compile-command "make lock" --upgrade --quiet --output-file requirements.txt

clean:  ## remove the environment and caches; answers and grades stay
	rm -rf .venv .pytest_cache .ruff_cache *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): requirements.txt pyproject.toml
	@$(PYTHON) -c "import sys; (3, 11) <= sys.version_info < (3, 15) or sys.exit('This book needs Python 3.11 to 3.14, and $(PYTHON) is ' + sys.version.split()[0] + '. Name another: make read PYTHON=python3.12')"
	@echo "Installing the book's packages into $(VENV); about a minute, once."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
