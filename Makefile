# make demo   install, train on the embedded Glyphs, evaluate, write a report to look at
# make test   install what the tests need, run the default tests
# make help   everything else

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUN    ?= runs/demo

.PHONY: help demo test test-all test-cuda test-marked lab export run-notebooks check bench docs course grade clean

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: $(VENV)/.library  ## install, train on the embedded Glyphs, evaluate, write runs/demo/report.html
	$(BIN)/smoothap train demo --run $(RUN)
	@echo; echo "Look at it: $(CURDIR)/$(RUN)/report.html"

test: $(VENV)/.tests  ## the default tests, under ten minutes
	$(BIN)/python -m pytest -n auto --dist worksteal

test-all: $(VENV)/.tests  ## every test that needs no CUDA device (installs Chromium for the browser tests if it can)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not cuda"

test-cuda: $(VENV)/.tests  ## the tests that need a CUDA device (they are skipped where there is none)
	$(BIN)/python -m pytest -m cuda

test-marked: $(VENV)/.tests  ## the marked tests alone: slow, browser, course, miniature
	$(BIN)/python -m pytest -n auto --dist worksteal -m "(slow or browser or course or miniature) and not cuda"

lab: $(VENV)/.tests  ## the lessons in JupyterLab
	$(BIN)/jupyter lab nbs

export: $(VENV)/.tests  ## notebooks -> modules, and clean the notebooks; the stub of the public names
	$(BIN)/nbdev_export && $(BIN)/nbdev_clean && $(BIN)/python tools/stubs.py

run-notebooks: $(VENV)/.tests  ## run every notebook in a fresh kernel and keep its outputs
	$(BIN)/python tools/notebooks.py run

check: $(VENV)/.tests  ## modules in sync, notebooks clean, stubs fresh; ruff and pyright
	$(BIN)/python tools/notebooks.py check
	$(BIN)/python tools/stubs.py --check
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(VENV)/.tests  ## measure against peers and bounds, write docs/results/ and docs/benchmarks.md
	$(BIN)/python -m benchmarks

docs: $(VENV)/.tests  ## the site in _site/: results, reference and stale notebooks made anew, then Quarto (plain pages where it can't be had)
	$(BIN)/python tools/docs.py $(DOCS)

course: $(VENV)/.tests  ## build course/release/, the problem sets as students get them
	$(BIN)/python tools/course.py release

grade: $(VENV)/.tests  ## grade course/submitted/ in a sandbox, write course/feedback/ and course/marks.csv
	UNSAFE=$(UNSAFE) $(BIN)/python tools/course.py grade

clean:           ## remove the environment and what was built; runs/ stays
	rm -rf $(VENV) build dist *.egg-info _site .pytest_cache .hypothesis

# Two stamps: the library alone for the demo, the tools on top for everything else.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "smoothap_nb needs Python 3.11 or newer; pass PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV) || { echo "No venv module: on Debian and Ubuntu run  apt-get install python3-venv"; exit 1; }

$(VENV)/.library: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cli]'
	@touch $@

$(VENV)/.tests: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.library
