# A short way in; CMakeLists.txt and CMakePresets.json do the work. `make demo` or `make test` is all a newcomer needs.
PREFIX ?= /usr/local
SOURCES = $(shell find include src apps tests $(wildcard fuzz) -name '*.c' -o -name '*.h')
TIDY = $(shell find src apps tests -name '*.c' -not -path 'tests/install/*')

all:
	@tools/bootstrap.sh build
	@test -f build/build.ninja || cmake --preset release
	@cmake --build build

demo: bootstrap all
	build/quern ops | sed -n '1,20p'
	build/quern ops soft_max
	build/quern bench dispatch

test: bootstrap
	@tests/run_tests.sh

bench: all
	build/quern bench dispatch

lint: bootstrap all
	clang-format --dry-run -Werror $(SOURCES)
	printf '%s\n' $(TIDY) | xargs -P "$$(nproc)" -n 1 clang-tidy -p build --quiet
	python3 tools/check_layers.py
	python3 tools/check_size.py
	tools/check_symbols.sh build

format:
	clang-format -i $(SOURCES)

install: all
	cmake --install build --prefix $(PREFIX)

bootstrap:
	@tools/bootstrap.sh

clean:
	rm -rf build

.NOTPARALLEL:
.PHONY: all demo test bench lint format install bootstrap clean
