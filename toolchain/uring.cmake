# TARN_URING: is there a liburing for the target? A native build wants it (the thread pool is its
# equal in function, not in speed); a cross build goes without where the target's library is
# missing.
include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES uring)
check_c_source_compiles("#define _GNU_SOURCE
#include <liburing.h>
int main(void) { struct io_uring ring; return io_uring_queue_init(1, &ring, 0); }"
  TARN_FOUND_LIBURING)
unset(CMAKE_REQUIRED_LIBRARIES)
option(TARN_URING "Build the io_uring backend" ON)
if(TARN_URING AND NOT TARN_FOUND_LIBURING)
  if(NOT CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "Missing liburing: install the package liburing-dev, or run toolchain/run, "
                        "which installs what is missing, or build without it (-DTARN_URING=OFF).")
  endif()
  message(STATUS "No liburing for ${CMAKE_SYSTEM_PROCESSOR}: io_uring is not built, threads serve")
  set(TARN_URING OFF)
endif()
set(TARN_URING_LIBRARY $<$<BOOL:${TARN_URING}>:uring>)
