# tarn_module(DIR DEPENDS ... LINK ...): one object library of all sources under DIR.
#
# Sources are globbed with CONFIGURE_DEPENDS: a file that lies in a module's folder belongs to it,
# and there is no second list to forget it in. Folders named cuda/ and none/ are alternatives
# (absence is a folder); files *_<isa>.cpp are built only where the architecture has that ISA, and
# .cu files only with TARN_CUDA.
function(tarn_require_header header package)
  include(CheckIncludeFileCXX)
  string(MAKE_C_IDENTIFIER "TARN_FOUND_${header}" found)
  find_path(${found} ${header})
  if(NOT ${found})
    message(FATAL_ERROR "Missing header <${header}>: install the package ${package}, or run "
                        "toolchain/run, which installs what is missing.")
  endif()
  mark_as_advanced(${found})
endfunction()

set(TARN_CXX_FLAGS_COMMON $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>
    $<$<COMPILE_LANGUAGE:C,CXX>:-fvisibility=hidden>
    $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>
    # GCC's "unique" symbols stay global whatever library.cmake does, and would tie two copies of
    # the library in one process together.
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fno-gnu-unique>)
# For what is compiled far longer than it runs: command lines.
set(TARN_CXX_FLAGS_BRIEF $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
if(TARN_SANITIZE)
  set(TARN_CXX_FLAGS_BRIEF $<$<COMPILE_LANGUAGE:CXX>:-O0>)
endif()
set(TARN_CXX_FLAGS_CORE $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions -fno-rtti>)

tarn_pch(tarn_core_pch OPTIONS ${TARN_CXX_FLAGS_COMMON} ${TARN_CXX_FLAGS_CORE}
         HEADERS ${TARN_PCH_CORE})

function(tarn_module dir)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK" ${ARGN})
  string(REPLACE "/" "_" name "tarn_${dir}")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS
       ${CMAKE_SOURCE_DIR}/${dir}/*.cpp ${CMAKE_SOURCE_DIR}/${dir}/*.c)
  set(cuda_sources "")
  if(TARN_CUDA)
    list(FILTER sources EXCLUDE REGEX "/none/")
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${dir}/*.cu)
    list(APPEND sources ${cuda_sources})
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/")
  endif()
  foreach(suffix avx2 avx512 neon)
    if(NOT suffix IN_LIST TARN_ISA_SUFFIXES)
      list(FILTER sources EXCLUDE REGEX "_${suffix}\\.cpp$")
    endif()
  endforeach()
  foreach(suffix ${TARN_ISA_SUFFIXES})
    set(isa_sources ${sources})
    list(FILTER isa_sources INCLUDE REGEX "_${suffix}\\.cpp$")
    set_source_files_properties(${isa_sources} PROPERTIES
      COMPILE_OPTIONS "${TARN_ISA_FLAGS_${suffix}}" TARN_ISA ${suffix})
  endforeach()
  if(NOT sources)
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
    set(scope INTERFACE)
  else()
    add_library(${name} OBJECT ${sources})
    if(TARN_UNITY)
      tarn_compile_together(${name})
      list(FILTER sources INCLUDE REGEX "/(none|cuda)/")  # tests link others in their place
      set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    target_compile_options(${name} PRIVATE ${TARN_CXX_FLAGS_COMMON} ${TARN_CXX_FLAGS_CORE})
    if(cuda_sources)
      target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${TARN_CUDA_FLAGS}>")
      set_source_files_properties(${cuda_sources} PROPERTIES
                                  COMPILE_OPTIONS "${TARN_CUDA_NO_SPILLS}")
      target_include_directories(${name} SYSTEM PRIVATE
                                 $<$<COMPILE_LANGUAGE:CUDA>:${TARN_CUDA_INCLUDE}>)
    endif()
    target_compile_definitions(${name} PRIVATE ${TARN_ISA_DEFINITIONS}
                               $<$<CONFIG:Debug>:TARN_DEBUG=1>)
    target_link_libraries(${name} PRIVATE tarn_warnings)
    if(TARN_FUZZ AND dir IN_LIST TARN_FUZZED_DIRS)
      target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
    elseif(dir MATCHES "^runtime/")
      tarn_use_pch(${name} tarn_core_pch)
    endif()
    set(scope PUBLIC)
  endif()
  foreach(dependency ${ARG_DEPENDS})
    string(REPLACE "/" "_" dependency_name "tarn_${dependency}")
    target_link_libraries(${name} ${scope} ${dependency_name})
  endforeach()
  target_link_libraries(${name} ${scope} ${ARG_LINK})
  # A folder's own module.cmake holds what only that folder needs (per-file flags, say).
  set(TARN_MODULE_TARGET ${name})
  include(${CMAKE_SOURCE_DIR}/${dir}/module.cmake OPTIONAL)
  set_property(GLOBAL APPEND PROPERTY TARN_MODULES ${name})
endfunction()
