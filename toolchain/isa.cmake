# Which CPU kernels this build can hold, and the flags of their files. A file named *_avx2.cpp or
# *_avx512.cpp gets its flags here and nowhere else; everything else is built for the baseline, so
# one binary runs on every machine of its architecture and picks its table at start.
include(CheckCXXCompilerFlag)
option(TARN_AVX512_EMULATED "Test AVX-512 bodies on a CPU with AVX2, lane by lane; not for use" OFF)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(TARN_ISA_SUFFIXES avx2 avx512)
  set(TARN_ISA_FLAGS_avx2 -mavx2 -mf16c -mfma)
  set(TARN_ISA_FLAGS_avx512 ${TARN_ISA_FLAGS_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq
      -mavx512vnni -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # gcc's own AVX-512 intrinsics start from an undefined register and warn about it (PR 105593).
    list(APPEND TARN_ISA_FLAGS_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  if(TARN_AVX512_EMULATED)  # without TARN_BENCH, whose attn_bench has AVX-512 of its own
    set(TARN_ISA_FLAGS_avx512 ${TARN_ISA_FLAGS_avx2} -Wno-psabi
        -include ${CMAKE_SOURCE_DIR}/tests/support/emulator/avx512.h)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/platform/cpu/topology.cpp PROPERTIES
                                COMPILE_DEFINITIONS TARN_AVX512_EMULATED)
  endif()
  set(TARN_ISA_DEFINITIONS TARN_HAVE_AVX2=1 TARN_HAVE_AVX512=1)
else()
  set(TARN_ISA_SUFFIXES "")
  set(TARN_ISA_DEFINITIONS "")
endif()
