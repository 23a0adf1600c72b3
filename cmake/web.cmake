# The profiler's page and its server: a library beside the core, for the quern command alone. The page is bundled from web/ with
# what comes from npm; libmicrohttpd serves it. Either may be missing: then one line says so, and the commands say so when called.

file(GLOB serve_sources CONFIGURE_DEPENDS src/serve/*.c)
if(profiler_missing)
    set(serve_sources ${PROJECT_BINARY_DIR}/left_out_page.c)
    left_out(${serve_sources} "this build has no profiler: ${profiler_missing}" quern/page.h)
endif()
add_library(quern_serve STATIC ${serve_sources})
target_include_directories(quern_serve PRIVATE include src)
target_link_libraries(quern_serve PRIVATE quern_flags quern_static ZLIB::ZLIB)
set_target_properties(quern_serve PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
if(profiler_missing)
    return()
endif()

# ---- libmicrohttpd
find_library(MICROHTTPD_LIBRARY microhttpd)
find_path(MICROHTTPD_INCLUDE microhttpd.h)
if(MICROHTTPD_LIBRARY AND MICROHTTPD_INCLUDE)
    target_compile_definitions(quern_serve PRIVATE QUERN_HAS_MICROHTTPD)
    target_include_directories(quern_serve SYSTEM PRIVATE ${MICROHTTPD_INCLUDE})
    target_link_libraries(quern_serve PRIVATE ${MICROHTTPD_LIBRARY})
else()
    build_lacks("profile serve" "libmicrohttpd was not found when this was built (Debian: libmicrohttpd-dev)")
endif()

# ---- npm packages, once for all build folders of a checkout. The lock file says which; a stamp says that they are there.
set(web_dir ${PROJECT_BINARY_DIR}/web)
cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${PROJECT_BINARY_DIR} NORMALIZE web_shared)
if(web_shared)
    set(web_dir ${PROJECT_SOURCE_DIR}/build/web)
endif()

find_program(NODE_PROGRAM node)
find_program(NPM_PROGRAM npm)
set(web_missing "")
set(web_get ${NPM_PROGRAM} ci --omit=dev --no-audit --no-fund --fetch-retries=1)
if(NOT NPM_PROGRAM) # a few hundred packages on Debian, for three of its own: node gets those alone
    set(web_get ${NODE_PROGRAM} ${PROJECT_SOURCE_DIR}/web/fetch.mjs package-lock.json .)
endif()
if(NOT NODE_PROGRAM)
    set(web_missing "node was not found when this was built (Debian: nodejs)")
else()
    file(SHA256 ${PROJECT_SOURCE_DIR}/web/package-lock.json web_lock)
    file(MAKE_DIRECTORY ${web_dir})
    file(LOCK ${web_dir}/lock GUARD FILE TIMEOUT 600)
    if(NOT EXISTS ${web_dir}/${web_lock}.stamp)
        file(COPY ${PROJECT_SOURCE_DIR}/web/package.json ${PROJECT_SOURCE_DIR}/web/package-lock.json DESTINATION ${web_dir})
        execute_process(COMMAND ${web_get} WORKING_DIRECTORY ${web_dir}
            OUTPUT_FILE ${web_dir}/npm.log ERROR_FILE ${web_dir}/npm.log RESULT_VARIABLE web_failed TIMEOUT 300)
        if(web_failed)
            message(STATUS "No packages for the profile page: see ${web_dir}/npm.log")
            set(web_missing "node could not get its packages when this was built")
        else()
            file(TOUCH ${web_dir}/${web_lock}.stamp)
        endif()
    endif()
    file(LOCK ${web_dir}/lock RELEASE)
endif()

# ---- The page as a C array
if(web_missing)
    build_lacks("profile html" "${web_missing}")
    target_compile_definitions(quern_serve PRIVATE "QUERN_PAGE_WHY=\"${web_missing}\"")
else()
    file(GLOB_RECURSE page_sources CONFIGURE_DEPENDS web/src/*)
    set(page_c ${PROJECT_BINARY_DIR}/page_asset.c)
    add_custom_command(OUTPUT ${page_c}
        COMMAND ${NODE_PROGRAM} ${PROJECT_SOURCE_DIR}/web/build.mjs ${web_dir}/node_modules ${page_c}
        DEPENDS ${page_sources} web/build.mjs web/package-lock.json COMMENT "Bundling the profile page" VERBATIM)
    target_sources(quern_serve PRIVATE ${page_c})
    target_compile_definitions(quern_serve PRIVATE QUERN_HAS_PAGE)
endif()
