# The Vulkan backend. Its shaders are compiled by glslc and end up as C arrays in the build folder; the headers are enough to
# build it, the loader is opened at run time. Without glslc or the headers its functions say why when asked.
# Reads and changes quern_sources; to be included before the library is made of them.

option(QUERN_VULKAN "Build the Vulkan backend where glslc and the Vulkan headers are there" ON)
find_program(GLSLC glslc)
find_path(VULKAN_INCLUDE vulkan/vulkan_core.h)

set(vulkan_missing "")
if(NOT QUERN_VULKAN)
    set(vulkan_missing "QUERN_VULKAN is off")
elseif(NOT GLSLC)
    set(vulkan_missing "glslc was not found when this was built (Debian: glslc)")
elseif(NOT VULKAN_INCLUDE)
    set(vulkan_missing "the Vulkan headers were not found when this was built (Debian: libvulkan-dev)")
endif()

set(vulkan_dir ${PROJECT_SOURCE_DIR}/src/vulkan)
if(vulkan_missing)
    build_lacks(Vulkan "${vulkan_missing}")
    list(FILTER quern_sources EXCLUDE REGEX "^src/vulkan/")
    left_out(${PROJECT_BINARY_DIR}/left_out_vulkan.c "this build has no Vulkan: ${vulkan_missing}" vulkan/vulkan.h)
    list(APPEND quern_sources ${PROJECT_BINARY_DIR}/left_out_vulkan.c)
    return()
endif()

link_libraries(${CMAKE_DL_LIBS})
if(NOT VULKAN_INCLUDE IN_LIST CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES)
    include_directories(SYSTEM ${VULKAN_INCLUDE})
endif()

# Whether glslc knows an extension of the language; asked once per extension and compiler.
function(glslc_knows extension result)
    string(MAKE_C_IDENTIFIER "GLSLC_KNOWS_${extension}_${GLSLC}" cached)
    if(NOT DEFINED ${cached})
        set(probe ${PROJECT_BINARY_DIR}/vulkan/${extension}.comp)
        file(WRITE ${probe} "#version 450\n#extension ${extension} : require\nvoid main() {}\n")
        execute_process(COMMAND ${GLSLC} --target-env=vulkan1.3 -o ${probe}.spv ${probe} RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
        if(code EQUAL 0)
            set(${cached} 1 CACHE INTERNAL "")
        else()
            set(${cached} 0 CACHE INTERNAL "")
        endif()
    endif()
    set(${result} ${${cached}} PARENT_SCOPE)
endfunction()

file(GLOB vulkan_shaders CONFIGURE_DEPENDS ${vulkan_dir}/glsl/*.comp)
file(GLOB vulkan_shared CONFIGURE_DEPENDS ${vulkan_dir}/glsl/*.glsl)
set(vulkan_build ${PROJECT_BINARY_DIR}/vulkan)
file(MAKE_DIRECTORY ${vulkan_build})
set(shader_arrays "")
set(shader_table "")
set(shader_files "")
foreach(shader ${vulkan_shaders})
    cmake_path(GET shader STEM name)
    file(STRINGS ${shader} flags REGEX "^// glslc: ") # what a shader asks for instead
    string(REGEX REPLACE "^// glslc: " "" flags "${flags}")
    if(NOT flags)
        set(flags "-O --target-env=vulkan1.2")
    endif()
    separate_arguments(flags)
    set(lacks "")
    file(STRINGS ${shader} extensions REGEX "^#extension GL_(KHR|NV|EXT)_.*require")
    foreach(line ${extensions})
        string(REGEX REPLACE "^#extension ([A-Za-z0-9_]+).*" "\\1" extension ${line})
        glslc_knows(${extension} known)
        if(NOT known)
            string(APPEND lacks " ${extension}")
        endif()
    endforeach()
    if(lacks)
        cmake_path(GET GLSLC FILENAME compiler)
        build_lacks("shader ${name}" "${compiler} does not know${lacks}")
        continue()
    endif()
    set(out ${vulkan_build}/${name}.spv.inc)
    add_custom_command(OUTPUT ${out} DEPENDS ${shader} ${vulkan_shared} VERBATIM
        COMMAND ${GLSLC} -Werror ${flags} -mfmt=num -o ${out} ${shader} COMMENT "Shader ${name}")
    list(APPEND shader_files ${out})
    string(APPEND shader_arrays "static const uint32_t code_${name}[] = {\n#include \"${name}.spv.inc\"\n};\n")
    string(APPEND shader_table "    {\"${name}\", code_${name}, sizeof code_${name}},\n")
endforeach()
file(CONFIGURE OUTPUT ${vulkan_build}/vk_shaders.c @ONLY CONTENT
"/* Made by cmake/vulkan.cmake: every shader of src/vulkan/glsl. */
#include \"vulkan/vk.h\"

@shader_arrays@
const qn_vk_shader qn_vk_shaders[] = {
@shader_table@    {NULL, NULL, 0},
};
")
set_source_files_properties(${vulkan_build}/vk_shaders.c PROPERTIES OBJECT_DEPENDS "${shader_files}")
list(APPEND quern_sources ${vulkan_build}/vk_shaders.c ${shader_files})
