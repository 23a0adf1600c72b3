# A short way in; CMakeLists.txt and CMakePresets.json do the work. `make demo` or `make test` is all a newcomer needs.
PREFIX ?= /usr/local
TIDY = $(shell find src apps tests -name '*.c' -not -path 'tests/install/*')

all:
	@tools/bootstrap.sh build
	@test -f build/build.ninja || cmake --preset release
	@cmake --build build

# Our own model tells a tale; what its plan allocates; where the time went, as a page. Where plain make has built, that is what runs;
# else what this needs and no more is built in a folder of its own.
DEMO = $(if $(wildcard build/build.ninja),build,build/demo)
demo:
	@tools/bootstrap.sh demo
	@test -f $(DEMO)/build.ninja || cmake --preset demo
	@cmake --build $(DEMO) --target quern_app
	@rm -rf build/demo-profile
	@echo
	$(DEMO)/quern run -m models/stories.gguf -p "Once upon a time" --seed 7 --profile=build/demo-profile
	@echo
	$(DEMO)/quern plan -m models/stories.gguf
	@echo
	@$(DEMO)/quern profile html build/demo-profile -o build/demo.html && echo "the profile: open build/demo.html in a browser" || \
		echo "no page: it is bundled by node, which was not there, or could not get its packages, when the build was configured"

# The quick lane: what a developer runs all day. LANES adds deep lanes, as in `make test LANES=asan`; docs/testing.md lists them.
test:
	@tools/bootstrap.sh $(if $(LANES),all,quick)
	@eval "$$(tools/plain_core.sh build/plain-core)" && python3 tests/run.py quick $(LANES)

test-all: LANES = all
test-all: test

bench: all
	build/quern bench dispatch

lint: bootstrap all
	tools/check_format.sh
	printf '%s\n' $(TIDY) | xargs -P "$$(nproc)" -n 1 clang-tidy -p build --quiet
	python3 tools/check_layers.py
	python3 tools/check_size.py
	tools/check_symbols.sh build

format:
	tools/check_format.sh --fix

install: all
	cmake --install build --prefix $(PREFIX)

# Takes away what `make install` put there; with the PREFIX and DESTDIR of that call, if it had them.
uninstall:
	@tools/uninstall.sh build "$(PREFIX)"

# A Debian package of what plain make builds, in build/.
deb: all
	@cd build && cpack -G DEB

bootstrap:
	@tools/bootstrap.sh

clean:
	rm -rf build

.NOTPARALLEL:
.PHONY: all demo test test-all bench lint format install uninstall deb bootstrap clean
