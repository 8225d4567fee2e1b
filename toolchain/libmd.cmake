# TARN_LIBMD: libmd.a of the target, which computes SHA-256 (platform/cpu/sha256.cpp). Always the
# static library: it becomes a part of libtarn.a, whose hosts need not know it. A cross build takes
# it from build/MACHINE-libs, where toolchain/common.sh puts it.
tarn_require_header(sha2.h libmd-dev)
find_library(TARN_LIBMD libmd.a HINTS ${CMAKE_SOURCE_DIR}/build/${CMAKE_SYSTEM_PROCESSOR}-libs)
if(NOT TARN_LIBMD)
  message(FATAL_ERROR "Missing libmd.a: install the package libmd-dev, or run toolchain/run, which "
                      "installs what is missing; for a cross build toolchain/test aarch64 gets it.")
endif()
mark_as_advanced(TARN_LIBMD)
