# TARN_CUDA: the language CUDA, the architectures, the flags of device code, the static runtime.
#
#   TARN_CUDA_ARCHS      auto: what Tarn ships cubins for and this nvcc can make, and PTX of the
#                        newest, for GPUs that are younger; tegra: of these cubins, Orin's and
#                        Thor's; or a list (87;120), of which nothing may be missing
#   TARN_CUDA_PTX_ARCH   of which architecture there is PTX; 0: of none
#   TARN_CUDA_FLAGS      of every .cu of ours
#   TARN_CUDART          what programs link; empty where this toolkit has none for the target (a
#                        cross build with the host's toolkit): then the objects are built and
#                        nothing is linked (TARN_CUDA_OBJECTS_ONLY)
#
# The driver is not linked: libcudart_static opens libcuda.so.1 when it is first asked, so the same
# program starts where there is none. cuBLAS is opened by platform/gpu/cuda/cublas.cpp, or not.
set(TARN_CUDA_ARCHS auto CACHE STRING "CUDA architectures: auto, tegra, or a list such as 87;120")
set(archs_auto 80 86 87 89 90 100 110 120)  # 103 runs 100's, 121 120's
set(archs_tegra 87 110)

if(NOT CMAKE_CUDA_COMPILER)
  find_program(TARN_NVCC nvcc HINTS $ENV{CUDACXX} ENV CUDA_PATH /usr/local/cuda
               PATH_SUFFIXES bin NO_CMAKE_FIND_ROOT_PATH)
  if(NOT TARN_NVCC)
    message(FATAL_ERROR "TARN_CUDA is on, and there is no nvcc in the PATH or in "
            "/usr/local/cuda/bin: install CUDA's toolkit (12.2 or later), or leave TARN_CUDA off")
  endif()
  set(CMAKE_CUDA_COMPILER ${TARN_NVCC})
endif()

# A cubin serves one architecture, and a toolkit knows those of its time: it is asked, not assumed.
execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code OUTPUT_VARIABLE nvcc_archs
                RESULT_VARIABLE nvcc_failed)
string(REGEX MATCHALL "sm_[0-9]+" nvcc_archs "${nvcc_archs}")
if(nvcc_failed OR NOT nvcc_archs)
  message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} does not list its architectures: Tarn needs CUDA "
                      "12.2 or later")
endif()
set(wanted ${TARN_CUDA_ARCHS})
set(may_miss OFF)
if(TARN_CUDA_ARCHS MATCHES "^(auto|tegra)$")
  set(wanted ${archs_${TARN_CUDA_ARCHS}})
  set(may_miss ON)
endif()
set(TARN_CUDA_ARCHS_BUILT "")
foreach(arch ${wanted})
  if(sm_${arch} IN_LIST nvcc_archs)
    list(APPEND TARN_CUDA_ARCHS_BUILT ${arch})
  elseif(NOT may_miss)
    message(FATAL_ERROR "this nvcc cannot build for sm_${arch}; it knows ${nvcc_archs}")
  endif()
endforeach()
if(NOT TARN_CUDA_ARCHS_BUILT)
  message(FATAL_ERROR "this nvcc knows none of sm_${wanted}: Tarn needs CUDA 12.2 or later")
endif()
set(CMAKE_CUDA_ARCHITECTURES ${TARN_CUDA_ARCHS_BUILT})
list(TRANSFORM CMAKE_CUDA_ARCHITECTURES APPEND -real)
# A JIT takes time, disk and memory, of which a board has none to spare: PTX is for desktops alone.
set(TARN_CUDA_PTX_ARCH 0)
if(TARN_CUDA_ARCHS STREQUAL auto)
  list(GET TARN_CUDA_ARCHS_BUILT -1 TARN_CUDA_PTX_ARCH)
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${TARN_CUDA_PTX_ARCH}-virtual)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
get_filename_component(nvcc_real ${CMAKE_CUDA_COMPILER} REALPATH)
get_filename_component(toolkit ${nvcc_real}/../.. REALPATH)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
  set(targets ${toolkit}/targets/aarch64-linux ${toolkit}/targets/sbsa-linux
              ${CMAKE_SOURCE_DIR}/build/aarch64-libs)
  if(NOT CMAKE_CROSSCOMPILING)
    list(APPEND targets ${toolkit})
  endif()
else()
  set(targets ${toolkit}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux ${toolkit})
endif()
find_path(TARN_CUDA_INCLUDE cuda_runtime.h
          PATHS ${targets} ${toolkit}/targets/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux
          PATH_SUFFIXES include NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
find_library(TARN_CUDART_STATIC cudart_static PATHS ${targets} PATH_SUFFIXES lib lib64
             NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
mark_as_advanced(TARN_NVCC TARN_CUDA_INCLUDE TARN_CUDART_STATIC)
if(NOT TARN_CUDA_INCLUDE)
  message(FATAL_ERROR "no cuda_runtime.h beside ${CMAKE_CUDA_COMPILER}: install the headers of the "
                      "toolkit's runtime")
endif()
if(CMAKE_CROSSCOMPILING)
  # nvcc makes objects for aarch64 with the host's toolkit, but looks for headers where the board's
  # would be; and the program by which CMake knows nvcc must be linked without the board's runtime.
  set(CMAKE_CUDA_FLAGS_INIT
      "-isystem ${TARN_CUDA_INCLUDE} --cudart=none -Xlinker --unresolved-symbols=ignore-all")
  set(CMAKE_CUDA_COMPILER_WORKS TRUE)
endif()
enable_language(CUDA)
# CMake 3.22 to 3.25 do not know that nvcc does; CUDA_STANDARD follows CXX_STANDARD.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}, cubins for sm: ${TARN_CUDA_ARCHS_BUILT}, "
               "PTX (0: none): ${TARN_CUDA_PTX_ARCH}")

set(TARN_CUDA_OBJECTS_ONLY OFF)
set(TARN_CUDART "")
if(TARN_CUDART_STATIC)
  set(TARN_CUDART ${TARN_CUDART_STATIC} ${CMAKE_DL_LIBS} rt)
elseif(CMAKE_CROSSCOMPILING)
  message(STATUS "No libcudart_static for ${CMAKE_SYSTEM_PROCESSOR}: libtarn.a alone is built")
  set(TARN_CUDA_OBJECTS_ONLY ON)
else()
  message(FATAL_ERROR "no libcudart_static beside ${CMAKE_CUDA_COMPILER}: install the toolkit's "
                      "static runtime")
endif()

# --fmad=false is the house's rule for arithmetic: the host's run of the same kernels gives the same
# bits. Relaxed constexpr is for sizes that both sides work out. Of the host's half only those
# warnings are asked that nvcc's own additions to it survive.
set(TARN_CUDA_FLAGS --fmad=false --expt-relaxed-constexpr
    $<$<BOOL:${TARN_WERROR}>:--Werror=all-warnings>
    -Xcompiler=-Wall,-Wextra,-Wshadow,-Wno-unused-parameter
    -Xcompiler=-fvisibility=hidden,-ffp-contract=off
    $<$<BOOL:${TARN_WERROR}>:-Xcompiler=-Werror>)
# Of every .cu that a module.cmake does not except, by name and with the reason: nothing may lie in
# local memory, since spilled registers and arrays with a computed index cost what a kernel saves.
set(TARN_CUDA_NO_SPILLS -Xptxas=-warn-spills,-warn-lmem-usage)
