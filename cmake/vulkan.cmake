# The Vulkan backend. Its shaders are compiled by glslc and end up as C arrays in the build folder; the headers are enough to
# build it, the loader is opened at run time. Without glslc or the headers vk_stub.c takes its place, and says why when asked.
# Reads and changes quern_sources; to be included before the library is made of them.

option(QUERN_VULKAN "Build the Vulkan backend where glslc and the Vulkan headers are there" ON)
find_program(GLSLC glslc)
find_path(VULKAN_INCLUDE vulkan/vulkan_core.h)

set(vulkan_missing "")
if(NOT QUERN_VULKAN)
    set(vulkan_missing "QUERN_VULKAN is off")
elseif(NOT GLSLC)
    set(vulkan_missing "glslc was not found when it was built")
elseif(NOT VULKAN_INCLUDE)
    set(vulkan_missing "the Vulkan headers were not found when it was built")
endif()

set(vulkan_dir ${PROJECT_SOURCE_DIR}/src/vulkan)
if(vulkan_missing)
    message(STATUS "No Vulkan in this build: ${vulkan_missing}")
    list(FILTER quern_sources EXCLUDE REGEX "/src/vulkan/")
    list(APPEND quern_sources ${vulkan_dir}/vk_stub.c)
    set_source_files_properties(${vulkan_dir}/vk_stub.c PROPERTIES COMPILE_DEFINITIONS "QN_VULKAN_WHY=\"${vulkan_missing}\"")
    return()
endif()

list(FILTER quern_sources EXCLUDE REGEX "/src/vulkan/vk_stub.c$")
link_libraries(${CMAKE_DL_LIBS})
if(NOT VULKAN_INCLUDE IN_LIST CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES)
    include_directories(SYSTEM ${VULKAN_INCLUDE})
endif()

file(GLOB vulkan_shaders CONFIGURE_DEPENDS ${vulkan_dir}/glsl/*.comp)
file(GLOB vulkan_shared CONFIGURE_DEPENDS ${vulkan_dir}/glsl/*.glsl)
set(vulkan_build ${PROJECT_BINARY_DIR}/vulkan)
file(MAKE_DIRECTORY ${vulkan_build})
set(shader_arrays "")
set(shader_table "")
set(shader_files "")
foreach(shader ${vulkan_shaders})
    cmake_path(GET shader STEM name)
    set(out ${vulkan_build}/${name}.spv.inc)
    add_custom_command(OUTPUT ${out} DEPENDS ${shader} ${vulkan_shared} VERBATIM
        COMMAND ${GLSLC} -O -Werror --target-env=vulkan1.2 -mfmt=num -o ${out} ${shader} COMMENT "Shader ${name}")
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
