# `make deb`: a Debian package of one build, with the command, the library and what programs are built with.
set(QUERN_MAINTAINER "The Quern authors <maintainers@quern.invalid>" CACHE STRING "Maintainer of the Debian package, with an address")

install(FILES LICENSE RENAME copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
find_program(GZIP_PROGRAM gzip)
if(EXISTS ${PROJECT_SOURCE_DIR}/CHANGELOG.md AND GZIP_PROGRAM)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS CHANGELOG.md)
    execute_process(COMMAND ${GZIP_PROGRAM} -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md OUTPUT_FILE ${PROJECT_BINARY_DIR}/changelog.gz)
    install(FILES ${PROJECT_BINARY_DIR}/changelog.gz DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()

# --strip strips programs and shared libraries; of a static one it leaves what debuggers read, most of its bytes.
install(CODE "
    if(CMAKE_INSTALL_DO_STRIP)
        execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug
            \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libquern.a\" COMMAND_ERROR_IS_FATAL ANY)
    endif()")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quern)
set(CPACK_PACKAGE_CONTACT "${QUERN_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "tensor runtime with language models and a profiler")
set(CPACK_PACKAGE_DESCRIPTION "Quern runs and trains neural networks on a CPU or a Vulkan GPU: ops one by one,
graphs that are planned before they run, and language models from GGUF files.
It reads the traces of PyTorch's profiler and shows them in a page.
This package has the quern command, the library, its headers and its tables.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON) # what the programs need, asked of the programs
# dpkg's trigger tells the linker of the library; CPack's own scripts would call ldconfig, which Debian has given up.
set(deb_control ${PROJECT_BINARY_DIR}/debian)
file(WRITE ${deb_control}/triggers "activate-noawait ldconfig\n")
file(WRITE ${deb_control}/shlibs "libquern ${PROJECT_VERSION_MAJOR} quern (>= ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${deb_control}/triggers ${deb_control}/shlibs)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libvulkan1) # opened at run time
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
