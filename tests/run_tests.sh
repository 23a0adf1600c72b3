#!/usr/bin/env bash
# The whole suite: every build flavour, and in each what is worth running there. One line per test, a tail of the log where one
# fails, and at the end `N passed, N failed`. Logs stay in build/test-logs. Exits non-zero when anything failed.
set -uo pipefail
cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKELEVEL # the install test calls make itself
logs=build/test-logs
rm -rf "$logs"
mkdir -p "$logs"
: >"$logs/results"
export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
eval "$(tools/plain_core.sh build/plain-core)" # where a core's name promises more than it has, for lavapipe

limit=900 # seconds for one test
long=1800 # for every kernel under a sanitizer or an emulator, which take half of 900 alone

run() { # name, command...
    local name=$1 log=$logs/${1//\//-}.log from=$SECONDS
    shift
    if timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null; then
        echo "ok $name ($((SECONDS - from)) s)"
        echo ok >>"$logs/results"
    else
        printf '%s\n' "FAIL $name ($((SECONDS - from)) s): $*" "$(tail -n 40 "$log" | cut -c 1-300 | sed 's/^/    | /')"
        echo FAIL >>"$logs/results"
        return 1
    fi
}

skip() { echo "skip $1: $2"; }

build() { # preset, folder, targets if not all
    local preset=$1 folder=$2
    shift 2
    local limit=2400 # a busy machine of two cores has been seen to need 900
    run "$preset/build" sh -c "cmake --preset $preset && cmake --build $folder -j $(nproc) --target ${*:-all}"
}

# Before a program: the stack that quern.h lets a caller count on, and 64 KiB for the program itself. Sanitizers take more.
small_stack=(bash -c 'ulimit -S -s 576 && exec "$@"' --)

without="" # units that are not run
units() { # preset, folder, what goes before each program
    local program preset=$1 folder=$2
    shift 2
    for program in tests/unit/test_*.c; do
        [ -e "$program" ] || continue
        program=$(basename "$program" .c)
        case " $without " in *" $program "*) continue ;; esac
        run "$preset/$program" "$@" "$folder/tests/$program"
    done
}

# Inputs that once mattered to a fuzzer.
replays() { # preset, folder, what goes before each program
    local input preset=$1 folder=$2
    shift 2
    for input in fuzz/corpus/*; do
        input=$(basename "$input")
        run "$preset/replay-$input" "$@" "$folder/tests/replay_$input" "fuzz/corpus/$input"
    done
}

profile_tests() { # preset, folder
    run "$1/profile-cli" python3 tests/prof/check_cli.py "$2/quern"
    if [ -d ../shared/data/traces ]; then
        run "$1/profile-views" tests/prof/run.sh "$2/quern" ../shared/data/traces
    else
        skip "$1/profile-views" "no ../shared/data/traces beside this checkout"
    fi
}

release_tests() {
    build release build || return
    units release build "${small_stack[@]}"
    replays release build "${small_stack[@]}"
    run release/check-list build/qn_check list
    run release/check-test "${small_stack[@]}" build/qn_check test
    run release/check-grad "${small_stack[@]}" build/qn_check grad
    run release/check-grad-norm build/qn_check grad --op norm_back --seed 2 # where numbers of attributes were once too short
    run release/check-graphs "${small_stack[@]}" build/qn_check graphs
    run release/check-vmap build/qn_check vmap --quick
    run release/check-kernels "${small_stack[@]}" build/qn_check kernels --quick
    run release/check-threads "${small_stack[@]}" build/qn_check threads --quick
    run release/check-batch build/qn_check batch --quick
    run release/check-tolerances build/qn_check tolerances
    run release/example-train sh -c 'build/tests/example_train | tee /dev/stderr | grep -E "^step 400: loss 0\.[0-4]"'
    run release/example-state sh -c 'build/tests/example_state | tee /dev/stderr | grep -x "0\.[0-9]* 1\.[0-9]* 2\.[0-9]* 3\.[0-9]*"'
    run release/example-generate sh -c 'build/tests/example_generate models/stories.gguf | tee /dev/stderr | grep -E "\.$"'
    run release/bench-ops sh -c 'build/quern bench ops --op add --ms 5 -o csv | grep -E "^\"add\",\"512, 4096\",f32,1,[1-9]"'
    run release/plan-gpt2 sh -c 'build/quern plan --example gpt2 | tee build/plan.txt | grep -E "arena: 1\.0[0-9]+ times the lower bound"'
    run release/verbs python3 tests/apps/check_verbs.py build/quern
    run release/words python3 tests/apps/check_words.py build/quern
    run docs/true python3 tests/apps/check_docs.py build/quern
    run release/model-files python3 tests/format/check_cli.py build/quern
    run release/archs python3 tests/model/check_archs.py build/quern
    if [ -d ../shared/data/zoo ]; then
        run release/models python3 tests/model/check_models.py build/quern ../shared/data
        run release/convert python3 tests/model/check_convert.py build/quern ../shared/data
    else
        skip release/models "no ../shared/data/zoo beside this checkout"
    fi
    if [ -d ../shared/data/mnist ]; then
        run release/train-mnist sh -c 'one=$(build/quern train --example mnist --images 3200 --epochs 1 --threads 1 --require 85) &&
            two=$(build/quern train --example mnist --images 3200 --epochs 1 --threads 2 --require 85) &&
            echo "$one" && echo "$two" && [ "${one%;*}" = "${two%;*}" ]'
        if build/quern devices | grep -q '^vulkan:0'; then
            run release/train-vulkan build/quern train --example mnist --device vulkan --images 128 --epochs 1 --compare 1e-5
        else
            skip release/train-vulkan "no Vulkan device"
        fi
    else
        skip release/train-mnist "no ../shared/data/mnist beside this checkout"
    fi
    run release/train-mnist-folders tests/train/mnist.sh build/quern
    run release/train-stories tests/train/stories.sh build/quern
    run release/check-vectors-mini build/qn_check vectors tests/golden/vectors-mini
    run release/check-fuzz build/qn_check fuzz --seconds 10
    if [ -d ../shared/data/op-vectors ]; then
        run release/check-vectors build/qn_check vectors ../shared/data/op-vectors
    else
        skip release/check-vectors "no ../shared/data/op-vectors beside this checkout"
    fi
    if [ -e /usr/share/i18n/locales/ps_AF ]; then
        run release/locales tests/locale/run.sh build
    else
        skip release/locales "no definitions of locales"
    fi
    profile_tests release build
    run release/profile-page tests/web/run.sh build/quern
    run docs/ops-fresh sh -c 'build/quern ops --markdown >build/ops.md && diff -u docs/ops.md build/ops.md'
    run docs/families-fresh sh -c 'build/quern ops --seed all --markdown >build/families.md && diff -u docs/families.md build/families.md'
    run ops/seeds sh -c 'build/quern ops --seed all | grep resolved | tee build/seeds.txt | grep -E -c "^(emel: 94 of 94|rlx: 63 of 63|rlx_steps: 66 of 66|rlx_more: 32 of 32|mlx: 97 of 97) resolved" | grep -x 5 && cat build/seeds.txt'
    run ops/json sh -c 'build/quern ops --json >build/ops.json && python3 tests/check_ops_json.py build/ops.json'
    run ops/mermaid sh -c 'build/quern ops --mermaid >build/ops.mmd && grep -c "ready --> ready" build/ops.mmd | grep -x 190'
    run symbols tools/check_symbols.sh build
    install_tests
}

install_tests() {
    local stage
    stage=$(mktemp -d)
    if run install/install make install DESTDIR="$stage" PREFIX=/opt/quern; then
        for what in files header pkgconfig cmake readme; do
            run "install/$what" tests/install/check.sh "$what" "$stage/opt/quern"
        done
    fi
    rm -rf "$stage"
}

asan_tests() {
    build asan build/asan || return
    # their shaders run on what the driver compiles, and what drives them is in the other tests of Vulkan
    without="test_vulkan_attend test_vulkan_conv test_vulkan_llm test_vulkan_region test_vulkan_train" units asan build/asan
    replays asan build/asan
    run asan/check-test build/asan/qn_check test --quick --small
    run asan/check-grad build/asan/qn_check grad --quick
    run asan/check-graphs build/asan/qn_check graphs --quick
    limit=$long run asan/check-kernels build/asan/qn_check kernels --quick
    run asan/check-threads build/asan/qn_check threads --quick --small
    run asan/check-fuzz build/asan/qn_check fuzz --seconds 20
    profile_tests asan build/asan
}

# By the other compiler, without the libraries that a build may do without: what needs one says so, and everything else works.
bare_tests() {
    build bare build/bare || return
    # neither a compiler nor a library has a part in what these ask
    without="test_no_memory test_no_memory_more test_signal test_prof_hostile" units bare build/bare
    run bare/check-test build/bare/qn_check test --quick
}

# Where threads meet: who reads and who stops it, the recorder, the pool, plans that share one or are cancelled from outside, and what the
# headers allow at once.
tsan_tests() {
    local program meet="test_cancel test_record test_aside test_pool test_pool_rounds test_plan_runs test_threads"
    build tsan build/tsan $meet || return
    for program in $meet; do run "tsan/$program" "build/tsan/tests/$program"; done
}

# Reads of memory that nobody wrote, which the address sanitizer cannot see.
msan_tests() {
    if ! echo 'int main(void) { return 0; }' | clang -fsanitize=memory -x c -o /dev/null - >/dev/null 2>&1; then
        skip msan/build "clang has no memory sanitizer here"
        return
    fi
    build msan build/msan qn_check || return
    run msan/check-test build/msan/qn_check test --quick
    run msan/check-grad build/msan/qn_check grad --quick
}

# The other architecture: built with warnings as errors, run under emulation where there is one.
cross_tests() {
    local other=aarch64
    [ "$(uname -m)" = aarch64 ] && other=x86_64
    if ! command -v "$other-linux-gnu-gcc" >/dev/null; then
        skip "$other/build" "no $other-linux-gnu-gcc"
        return
    fi
    if [ ! -e "/usr/lib/$other-linux-gnu/libz.a" ]; then
        skip "$other/build" "no zlib for $other"
        return
    fi
    build "$other" "build/$other" quern quern_app qn_check || return
    if ! command -v "qemu-$other-static" >/dev/null; then
        skip "$other/check-test" "no qemu-$other-static"
        return
    fi
    local cpu=()
    [ "$other" = aarch64 ] && cpu=(-cpu max,sve256=on) # by itself it has vectors of 512 bits, for which there is no level
    run "$other/check-test" "qemu-$other-static" "${cpu[@]}" "build/$other/qn_check" test --quick --small
    limit=$long run "$other/check-kernels" "qemu-$other-static" "${cpu[@]}" "build/$other/qn_check" kernels --quick --small
    run "$other/check-threads" "qemu-$other-static" "${cpu[@]}" "build/$other/qn_check" threads --quick --small
    run "$other/check-batch" "qemu-$other-static" "${cpu[@]}" "build/$other/qn_check" batch --quick --small
    for op in matmul mul_mat cpy; do
        [ "$other" = aarch64 ] &&
            run "aarch64/check-sve-$op" env QUERN_CPU=c,sve "qemu-$other-static" "${cpu[@]}" "build/$other/qn_check" kernels --quick --small --op $op
    done
}

run layers python3 tools/check_layers.py
run sizes python3 tools/check_size.py
if formatter=$(tools/check_format.sh --which); then
    run format tools/check_format.sh
else
    skip format "$formatter"
fi
run plain-core tests/check_plain_core.sh
# Two lanes of about the same length, because the long checks use one core each.
{
    release_tests
    cross_tests
} &
{
    asan_tests
    tsan_tests
    msan_tests
    bare_tests
} &
wait

passed=$(grep -c ok "$logs/results")
failed=$(grep -c FAIL "$logs/results")
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
