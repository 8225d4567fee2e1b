# The host code that calls CUDA's runtime, and the list of this build's architectures.
if(TARN_CUDA)
  target_include_directories(${TARN_MODULE_TARGET} SYSTEM PRIVATE ${TARN_CUDA_INCLUDE})
  string(REPLACE ";" "," arch_list "${TARN_CUDA_ARCHS_BUILT}")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/platform/gpu/cuda/discovery.cpp PROPERTIES
    COMPILE_DEFINITIONS
    "TARN_CUDA_ARCH_LIST=${arch_list};TARN_CUDA_PTX_ARCH=${TARN_CUDA_PTX_ARCH}")
endif()
