# Debian's cross compiler for aarch64. Libraries of the build machine must not be picked up.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# Debian keeps the other architecture's zlib beside its own; linked whole, so that emulation needs no library path.
set(ZLIB_LIBRARY /usr/lib/aarch64-linux-gnu/libz.a)
set(ZLIB_INCLUDE_DIR /usr/include/aarch64-linux-gnu)
