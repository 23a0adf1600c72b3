# Every test there is, a row each: this is the one place that says where a test runs. docs/testing.md is generated from these rows.
#
#   suite(NAME LANES lane... BUDGET seconds [THREADS n] [STACK] [NEEDS what...] PROTECTS "sentence" COMMAND word...)
#   unit(NAME LANES lane... BUDGET seconds [THREADS n])
#
# LANES    the flavours of tests/lanes.txt in whose build the row runs.
# BUDGET   the seconds of one core that it may use. The runner fails a row that uses more on a quiet machine.
# THREADS  the cores that it keeps busy, 1 if the row does not say.
# STACK    the test runs with the stack that quern.h lets a caller count on, and 64 KiB for the program itself.
# NEEDS    what may be missing: `vulkan` for a Vulkan device, else a command, file or folder. Without it the row is skipped and says why.
# A unit test needs a row only where it differs from the rule: unit_lanes, a budget of 3 seconds. The first comment of its file says what
# it protects.

set(shared ${PROJECT_SOURCE_DIR}/../shared/data)
set(built ${PROJECT_BINARY_DIR})
set(quern ${built}/quern)
set(check ${QUERN_TEST_LAUNCHER} ${built}/qn_check)

# ---- Unit tests
set(unit_lanes quick asan bare)
unit(test_aside LANES quick asan bare tsan BUDGET 3)
unit(test_cancel LANES quick asan bare tsan BUDGET 3)
unit(test_pool LANES quick asan bare tsan BUDGET 3 THREADS 2)
unit(test_pool_rounds LANES quick asan bare tsan BUDGET 3 THREADS 2)
unit(test_plan_runs LANES quick asan bare tsan BUDGET 3)
unit(test_record LANES quick asan bare tsan BUDGET 3)
unit(test_threads LANES quick asan bare tsan BUDGET 3 THREADS 2)
foreach(kernels cpu_attention=55 cpu_codes=6 cpu_delta=3 cpu_detour=3 cpu_edges=7 cpu_past=12 cpu_squeeze=3 cpu_stream=3 cpu_tiles=3
        cpu_tokens=3 cpu_typed=5 company=29 products=36 bf16=7 rows=3 simd_math=4 plan_packs=13 families=3)
    string(REPLACE "=" ";" kernels ${kernels})
    list(GET kernels 0 name)
    list(GET kernels 1 seconds)
    unit(test_${name} LANES quick bare asan-kernels levels BUDGET ${seconds}) # the reference alone has nothing to show here
endforeach()
unit(test_no_memory LANES quick asan BUDGET 5) # neither a compiler nor a library has a part in what these four ask
unit(test_no_memory_more LANES quick asan BUDGET 28)
unit(test_template_steps LANES quick asan bare BUDGET 8)
unit(test_signal LANES quick asan BUDGET 13)
unit(test_prof_hostile LANES quick asan BUDGET 8)
foreach(device vulkan=36 vulkan_program=5 vulkan_fused=5 vulkan_index=4 vulkan_more=7 plan_device=5 device_cap=3)
    string(REPLACE "=" ";" device ${device})
    list(GET device 0 name)
    list(GET device 1 seconds)
    unit(test_${name} LANES quick asan vulkan vulkan-new BUDGET ${seconds})
endforeach()
foreach(device vulkan_attend=15 vulkan_conv=18 vulkan_llm=24 vulkan_region=32 vulkan_train=31) # the driver's compiler takes the time
    string(REPLACE "=" ";" device ${device})
    list(GET device 0 name)
    list(GET device 1 seconds)
    unit(test_${name} LANES quick vulkan vulkan-new BUDGET ${seconds})
endforeach()

# ---- qn_check: every op of the table on the cases of tests/cases
suite(check-list LANES quick BUDGET 3 PROTECTS "every op has cases" COMMAND ${check} list)
suite(check-test LANES quick bare BUDGET 29 STACK PROTECTS "references against goldens, guards, layouts; plans against single ops"
    COMMAND ${check} test --quick)
suite(check-test-small LANES asan asan-kernels msan aarch64 BUDGET 12 PROTECTS "the same with fewer layouts, for slow builds"
    COMMAND ${check} test --quick --small)
suite(check-test-all LANES levels BUDGET 200 PROTECTS "the same with every draw" COMMAND ${check} test)
suite(check-grad LANES quick BUDGET 37 STACK PROTECTS "gradients against finite differences in f64" COMMAND ${check} grad)
suite(check-grad-small LANES asan msan BUDGET 25 PROTECTS "the same with fewer draws, for slow builds" COMMAND ${check} grad --quick)
suite(check-grad-norm LANES quick BUDGET 3 PROTECTS "numbers of attributes keep their digits" COMMAND ${check} grad --op norm_back --seed 2)
suite(check-graphs LANES quick BUDGET 52 STACK PROTECTS "random graphs: passes, plans, gradients and text against single ops"
    COMMAND ${check} graphs)
suite(check-graphs-small LANES asan BUDGET 7 PROTECTS "the same with fewer draws, for slow builds" COMMAND ${check} graphs --quick)
suite(check-vmap LANES quick BUDGET 44 PROTECTS "graphs over a batch against one run for each of it" COMMAND ${check} vmap --quick)
suite(check-kernels LANES quick BUDGET 53 STACK PROTECTS "kernels against the reference: random, odd and large shapes, layouts, threads, packs"
    COMMAND ${check} kernels --quick)
suite(check-kernels-small LANES asan-kernels aarch64 BUDGET 20 PROTECTS "the same with small shapes, for slow builds"
    COMMAND ${check} kernels --quick --small)
suite(check-kernels-all LANES levels BUDGET 400 PROTECTS "the same at every level that this machine has" COMMAND ${check} kernels --quick)
suite(check-threads LANES quick asan-kernels aarch64 BUDGET 10 THREADS 2 PROTECTS "the same bits for any number of threads"
    COMMAND ${check} threads --quick --small)
suite(check-threads-all LANES levels BUDGET 150 THREADS 2 PROTECTS "the same for large shapes, at every level" COMMAND ${check} threads --quick)
suite(check-batch LANES quick aarch64 BUDGET 20 PROTECTS "a row has the same bits whoever else is in the batch"
    COMMAND ${check} batch --quick --small)
suite(check-batch-all LANES levels BUDGET 200 PROTECTS "the same for large shapes, at every level" COMMAND ${check} batch --quick)
suite(check-tolerances LANES quick levels BUDGET 32 PROTECTS "each family keeps the bounds of tests/tolerances.def" COMMAND ${check} tolerances)
suite(check-fuzz LANES quick BUDGET 12 PROTECTS "random requests: a guard accepts or refuses, nothing is written by a refusal"
    COMMAND ${check} fuzz --seconds 8)
suite(check-fuzz-long LANES asan BUDGET 20 PROTECTS "the same for longer" COMMAND ${check} fuzz --seconds 30)
suite(check-vectors-mini LANES quick BUDGET 3 PROTECTS "golden vectors that other programs gave" COMMAND ${check} vectors tests/golden/vectors-mini)
suite(check-vectors LANES quick BUDGET 3 NEEDS ${shared}/op-vectors PROTECTS "all golden vectors" COMMAND ${check} vectors ${shared}/op-vectors)
foreach(op matmul mul_mat cpy)
    suite(check-sve-${op} LANES aarch64 BUDGET 10 PROTECTS "the kernels of ${op} for SVE"
        COMMAND ${CMAKE_COMMAND} -E env QUERN_CPU=c,sve ${check} kernels --quick --small --op ${op})
endforeach()

# ---- The command
suite(verbs LANES quick BUDGET 16 PROTECTS "every verb at its edges: what it says, returns and leaves on the disk"
    COMMAND python3 tests/apps/check_verbs.py ${quern})
suite(words LANES quick BUDGET 4 PROTECTS "words of the command line that do not go together are refused" COMMAND python3 tests/apps/check_words.py ${quern})
suite(model-files LANES quick asan BUDGET 32 PROTECTS "inspect, quantize and convert on whole and damaged files" COMMAND python3 tests/format/check_cli.py ${quern})
suite(profile-cli LANES quick asan BUDGET 5 PROTECTS "quern profile on whole and damaged traces" COMMAND python3 tests/prof/check_cli.py ${quern})
suite(profile-views LANES quick asan BUDGET 14 NEEDS ${shared}/traces PROTECTS "every view, digit for digit, against the reference's"
    COMMAND tests/prof/run.sh ${quern} ${shared}/traces)
suite(profile-page LANES quick BUDGET 63 THREADS 2 NEEDS npm chromium ${shared}/traces PROTECTS "the profiler's page in a real browser"
    COMMAND tests/web/run.sh ${quern} ${shared}/traces ${built}/web-test)
suite(faults LANES quick BUDGET 30 PROTECTS "what users once met: each fault has a test of its name"
    COMMAND python3 tests/apps/check_faults.py ${quern})
suite(chat LANES quick BUDGET 10 PROTECTS "answers of quern chat: grammars, dates, stops, devices"
    COMMAND python3 tests/apps/check_chat.py ${quern})
suite(options LANES quick BUDGET 24 PROTECTS "every option that a verb accepts is in help, man page and completion"
    COMMAND python3 tests/apps/check_options.py ${quern})
suite(devices LANES quick BUDGET 15 PROTECTS "quern devices says what the machine has and what the build lacks"
    COMMAND python3 tests/apps/check_devices.py ${quern})
suite(archs LANES quick BUDGET 3 PROTECTS "a small model of every architecture runs" COMMAND python3 tests/model/check_archs.py ${quern})
suite(models LANES quick BUDGET 10 NEEDS ${shared}/zoo PROTECTS "logits of real architectures against recorded ones"
    COMMAND python3 tests/model/check_models.py ${quern} ${shared})
suite(convert LANES quick BUDGET 11 NEEDS ${shared}/zoo PROTECTS "folders of safetensors become the same GGUF"
    COMMAND python3 tests/model/check_convert.py ${quern} ${shared})
suite(locales LANES packages BUDGET 60 NEEDS /usr/share/i18n/locales/ps_AF PROTECTS "numbers in texts do not follow the locale" COMMAND tests/locale/run.sh ${built})
suite(train-mnist LANES quick BUDGET 12 THREADS 2 NEEDS ${shared}/mnist PROTECTS "training learns, the same for one thread and two"
    COMMAND tests/train/digits.sh ${quern} ${shared}/mnist)
suite(train-vulkan LANES vulkan vulkan-new BUDGET 60 NEEDS vulkan ${shared}/mnist PROTECTS "training on a device agrees with the CPU"
    COMMAND ${quern} train --example mnist --data ${shared}/mnist --device vulkan --images 128 --epochs 1 --compare 1e-5)
suite(train-mnist-folders LANES quick BUDGET 3 PROTECTS "folders that hold no digits are refused with a sentence" COMMAND tests/train/mnist.sh ${quern})
suite(train-stories LANES quick BUDGET 15 PROTECTS "the storyteller learns, and its file is a model" COMMAND tests/train/stories.sh ${quern})

# ---- What documents say, and what is generated
suite(docs LANES quick BUDGET 3 PROTECTS "what README and docs say is so" COMMAND python3 tests/apps/check_docs.py ${quern})
suite(docs-deep LANES packages BUDGET 200 PROTECTS "the same, with the commands that take long" COMMAND python3 tests/apps/check_docs.py ${quern} --deep)
suite(readme LANES quick BUDGET 5 PROTECTS "every command of README.md has a test" COMMAND python3 tests/apps/check_readme.py ${quern})
suite(readme-net LANES packages BUDGET 900 THREADS 2 PROTECTS "README's commands, as a stranger types them"
    COMMAND python3 tests/apps/check_readme.py ${quern} --net)
suite(generated LANES quick BUDGET 3 PROTECTS "generated pages are fresh, the ledgers of the four systems resolve"
    COMMAND tests/apps/generated.sh ${quern})
suite(example-train LANES quick BUDGET 3 PROTECTS "examples/train.c learns" COMMAND tests/apps/says.sh "^step 400: loss 0[.][0-4]" ${built}/tests/example_train)
suite(example-state LANES quick BUDGET 3 PROTECTS "examples/state.c keeps its state"
    COMMAND tests/apps/says.sh "^0[.][0-9]* 1[.][0-9]* 2[.][0-9]* 3[.][0-9]*$" ${built}/tests/example_state)
suite(example-generate LANES quick BUDGET 3 PROTECTS "examples/generate.c tells a tale"
    COMMAND tests/apps/says.sh "[.]$" ${built}/tests/example_generate models/stories.gguf)
suite(bench-ops LANES quick BUDGET 6 PROTECTS "quern bench ops measures"
    COMMAND tests/apps/says.sh "^\"add\",\"512, 4096\",f32,1,[1-9]" ${quern} bench ops --op add --ms 5 -o csv)
suite(plan-gpt2 LANES quick BUDGET 3 PROTECTS "the arena of GPT-2 stays near its lower bound"
    COMMAND tests/apps/says.sh "arena: 1[.]0[0-9]+ times the lower bound" ${quern} plan --example gpt2)
suite(install LANES packages BUDGET 120 PROTECTS "an installed copy serves C, C++, pkg-config and CMake" COMMAND tests/install/run.sh ${built})
suite(uninstall LANES packages BUDGET 30 PROTECTS "make uninstall takes away what make install put there, and nothing else"
    COMMAND tests/install/uninstall.sh ${built})
suite(small-library LANES packages BUDGET 240 THREADS 2 PROTECTS "the smallest configuration works, and says what was left out"
    COMMAND tests/install/small.sh)
suite(deb LANES packages BUDGET 400 PROTECTS "the Debian package in a clean Debian" COMMAND tests/install/deb.sh ${built})
suite(layers LANES quick BUDGET 3 PROTECTS "a folder includes only the folders below it" COMMAND python3 tools/check_layers.py)
suite(sizes LANES quick BUDGET 4 PROTECTS "files, functions and the public API keep their budgets" COMMAND python3 tools/check_size.py)
suite(format LANES quick BUDGET 15 NEEDS clang-format PROTECTS "every source is formatted alike" COMMAND tools/check_format.sh)
suite(symbols LANES quick BUDGET 24 PROTECTS "the library exports what the headers declare and nothing else" COMMAND tools/check_symbols.sh ${built})
suite(plain-core LANES packages BUDGET 10 PROTECTS "the tool that hides a core's name from lavapipe on Arm" COMMAND tests/check_plain_core.sh)

# ---- The tests' own
suite(testing-page LANES quick BUDGET 3 PROTECTS "docs/testing.md lists the tests that there are"
    COMMAND python3 tests/run.py --check-page ${built}/suites.json)
suite(runner LANES quick BUDGET 3 PROTECTS "the runner fails what fails, what exceeds its budget and what runs nothing" COMMAND python3 tests/check_runner.py)
