# What a build may lack, said once: to the functions that are left out, which answer with a sentence, and to the quern command, which
# lists what is missing (`quern devices`) and turns down the verbs that need it.

# build_lacks(PART SENTENCE): one row of the command's table, in the order of the calls.
function(build_lacks part sentence)
    message(STATUS "Left out: ${part}: ${sentence}")
    set_property(GLOBAL APPEND_STRING PROPERTY quern_lacks "    {\"${part}\", \"${sentence}\"},\n")
endfunction()

# The table as C, for the command; to be called when all rows are there.
function(build_lacks_write file)
    get_property(build_rows GLOBAL PROPERTY quern_lacks)
    file(CONFIGURE OUTPUT ${file} @ONLY CONTENT
"/* Made by cmake/parts.cmake: what this build lacks, and why. */
#include \"build_parts.h\"

const build_part build_lacks[] = {
@build_rows@    {NULL, NULL},
};
")
endfunction()

# left_out(FILE SENTENCE HEADER...): writes a C file with every function that the headers declare. Each sets the error, where there is
# one to set, to UNSUPPORTED with the sentence, and the handle it would have made to NULL; its result is UNSUPPORTED, NULL or 0. So
# programs link, and load, with every build. A header is named as an #include names it, and lies in include/ or src/.
function(left_out file sentence)
    set(space "[ \n]*")
    set(includes "")
    set(functions "")
    foreach(header ${ARGN})
        string(APPEND includes "#include \"${header}\"\n")
        set(path ${PROJECT_SOURCE_DIR}/include/${header})
        if(NOT EXISTS ${path})
            set(path ${PROJECT_SOURCE_DIR}/src/${header})
        endif()
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
        file(READ ${path} text)
        string(REGEX REPLACE "/[*][^*]*[*]+([^/*][^*]*[*]+)*/" "" text "${text}")
        string(REGEX MATCHALL "QN_API" promised "${text}")
        list(LENGTH promised promised)
        set(written 0)
        while(text MATCHES "\n(QN_API )?([a-z][a-z0-9_ ]*[ *])(qn_[a-z0-9_]+)[(]([^()]*)[)];")
            set(all "${CMAKE_MATCH_0}")
            set(api "${CMAKE_MATCH_1}")
            set(type "${CMAKE_MATCH_2}")
            set(name "${CMAKE_MATCH_3}")
            set(parameters "${CMAKE_MATCH_4}")
            string(FIND "${text}" "${all}" at)
            string(LENGTH "${all}" length)
            math(EXPR at "${at} + ${length}")
            string(SUBSTRING "${text}" ${at} -1 text)
            string(PREPEND text "\n")
            set(body "")
            if(NOT parameters STREQUAL "void")
                string(REGEX REPLACE "[^,]*[ *]([a-z0-9_]+)${space}(,${space}|$)" "    (void)\\1;\n" body "${parameters}")
            endif()
            set(rest "${parameters}")
            while(rest MATCHES "[a-z0-9_] [*][*]([a-z0-9_]+)(.*)$")
                string(APPEND body "    if (${CMAKE_MATCH_1}) *${CMAKE_MATCH_1} = NULL;\n")
                set(rest "${CMAKE_MATCH_2}")
            endwhile()
            if(parameters MATCHES "qn_error [*]error")
                string(APPEND body "    qn_error_set(error, QN_UNSUPPORTED, \"%s\", sentence);\n")
            endif()
            if(type MATCHES "[*]")
                string(APPEND body "    return NULL;\n")
            elseif(type STREQUAL "qn_status ")
                string(APPEND body "    return QN_UNSUPPORTED;\n")
            elseif(NOT type STREQUAL "void ")
                string(APPEND body "    return 0;\n")
            endif()
            string(APPEND functions "${type}${name}(${parameters}) {\n${body}}\n")
            if(api)
                math(EXPR written "${written} + 1")
            endif()
        endwhile()
        if(NOT written EQUAL promised)
            message(FATAL_ERROR "${path} promises ${promised} functions and cmake/parts.cmake understands ${written} of them")
        endif()
    endforeach()
    file(CONFIGURE OUTPUT ${file} @ONLY CONTENT
"/* Made by cmake/parts.cmake: functions that were left out of this build, and say so. */
@includes@
static const char sentence[] = \"@sentence@\";

@functions@")
endfunction()
