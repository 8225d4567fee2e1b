# Precompiled headers: parsing the same standard headers is most of the time to compile a file. With
# TARN_PCH off each file sees only what it includes: lint and the stage `plain` of CI build so, and
# tests/tidy compiles each header alone.
option(TARN_PCH "Precompile the standard headers, compile files of tests and tools together" ON)

# tarn_compile_together(TARGET): eight of its files are one for the compiler, for most of the time
# goes into templates that neighbours have in common. What goes into libtarn.a only with TARN_UNITY:
# a program that links it takes no more objects than it needs.
option(TARN_UNITY "Compile files of the library together, too: for builds of tests alone" OFF)
function(tarn_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TARN_PCH} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# The system's headers alone: GCC finds a header behind #pragma once again by its time, too, and a
# precompiled header from ccache may hold the times of another checkout.
set(TARN_PCH_CORE <algorithm> <array> <cmath> <cstring> <optional> <span> <string_view> <utility>)
set(TARN_PCH_TOOLS <algorithm> <array> <chrono> <cmath> <cstdio> <cstring> <filesystem> <functional>
    <memory> <optional> <span> <sstream> <stdexcept> <string> <string_view> <vector>)
set(TARN_PCH_TESTS <doctest/doctest.h> ${TARN_PCH_TOOLS} <fstream> <limits> <map> <set> <thread>)

# ccache caches what uses a precompiled header only with these settings, and with the options of
# tarn_use_pch_flags().
if(TARN_PCH)
  foreach(language C CXX)
    if("${CMAKE_${language}_COMPILER_LAUNCHER}" MATCHES "ccache$")
      set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
          CCACHE_SLOPPINESS=pch_defines,time_macros ${CMAKE_${language}_COMPILER_LAUNCHER})
    endif()
  endforeach()
endif()

# tarn_pch(HOLDER OPTIONS ... HEADERS ...): an object library with precompiled headers, for all
# targets that are compiled with the same options.
function(tarn_pch holder)
  if(NOT TARN_PCH)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "OPTIONS;HEADERS")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/pch/${holder}.cpp CONTENT "")
  add_library(${holder} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/pch/${holder}.cpp)
  target_include_directories(${holder} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${holder} PRIVATE ${ARG_OPTIONS})
  target_link_libraries(${holder} PRIVATE tarn_warnings)
  target_precompile_headers(${holder} PRIVATE ${ARG_HEADERS})
  tarn_use_pch_flags(${holder})
endfunction()

# GCC 12 forgets that what it warns about lies in a system header, and sees an overflow in
# std::string's operator+ that is not there (GCC bug 105651).
function(tarn_use_pch_flags target)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-stringop-overflow>
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:SHELL:-Xclang -fno-pch-timestamp>")
endfunction()

function(tarn_use_pch target holder)
  if(TARN_PCH)
    target_precompile_headers(${target} REUSE_FROM ${holder})
    tarn_use_pch_flags(${target})
  endif()
endfunction()
