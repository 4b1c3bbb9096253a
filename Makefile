# make demo   set up and run the main job: discover the rotation in two-body orbits
# make test   set up and run every test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint bench stress zoo reproduction docs fuzz audit sbom setup clean

help:
	@grep -E '^# make ' Makefile | cut -c3-

demo: setup
	$(BIN)/lieaugmenter demo

# Two workers of one thread each: the tests are many and small.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

# make lint   style, types, and which room may import which
lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

# make bench  the speed ratios of the README, written to benchmarks/results
bench: setup
	$(BIN)/python benchmarks/ratios.py

# make stress  kill runs at 100 random moments, resume them, and compare to the bit
stress: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/kills.py

# make zoo    every task with a known algebra, five seeds of all methods (hours), and docs/zoo.md
zoo: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.zoo.run --workers 2
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.zoo.run --workers 2 \
		--methods liegg-known ours-known --sizes 100 --noise 0.3
	$(BIN)/python -m benchmarks.zoo.page runs/zoo

# make reproduction  docs/reproduction.md and its figures from results
reproduction: setup
	$(BIN)/python -m lieaugmenter.report.reproduction results docs/reproduction.md

# make docs   the site in site/, without a warning and without a network
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# make fuzz   10,000 hostile files for all readers, led by coverage; benchmarks/results/fuzz.json
fuzz: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/fuzz.py

# make audit  known vulnerabilities of the pinned versions; needs the network, and fails without it
audit: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[audit]'
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

# make sbom   the software bill of materials of the pinned versions, build/sbom.json (CycloneDX)
sbom: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[audit]'
	@mkdir -p build
	$(BIN)/cyclonedx-py requirements constraints.txt --pyproject pyproject.toml \
		--output-reproducible --validate --output-file build/sbom.json

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "lieaugmenter needs Python 3.11 or newer; set PYTHON=... to one"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache
