# The trace analyser: all of src/prof but the recorder, which writes traces and has the numbers of a machine's roof in them.
# Reads and changes quern_sources; to be included before the library is made of them.

option(QUERN_PROFILER "Build the trace analyser, and the profiler's page for the command" ON)

set(profiler_missing "")
if(NOT QUERN_PROFILER)
    set(profiler_missing "QUERN_PROFILER is off")
    build_lacks(profiler "${profiler_missing}")
    list(FILTER quern_sources EXCLUDE REGEX "^src/prof/")
    file(GLOB profiler_kept RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS src/prof/record*.c src/prof/roofline_*.c src/prof/prof_num.c)
    left_out(${PROJECT_BINARY_DIR}/left_out_profiler.c "this build has no profiler: ${profiler_missing}" quern/profile.h)
    list(APPEND quern_sources ${profiler_kept} ${PROJECT_BINARY_DIR}/left_out_profiler.c)
endif()
