# tarn_gpu_emulated: every CUDA kernel of the tree, compiled as C++ over the host's half of
# kernels/common/cta.h, with the emulator that runs it. Test programs link it; the product never.
file(GLOB_RECURSE emulated_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*.cu)
file(GLOB emulator_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
set_source_files_properties(${emulated_kernels} PROPERTIES LANGUAGE CXX)
add_library(tarn_gpu_emulated STATIC EXCLUDE_FROM_ALL ${emulated_kernels} ${emulator_sources})
target_compile_options(tarn_gpu_emulated PRIVATE ${TARN_CXX_FLAGS_COMMON})
target_link_libraries(tarn_gpu_emulated PUBLIC tarn_test_support PRIVATE tarn_warnings)
