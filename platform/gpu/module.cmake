# Which cubins this build holds.
if(TARN_CUDA)
  string(REPLACE ";" "," arch_list "${TARN_CUDA_ARCHS_BUILT}")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/platform/gpu/cuda/discovery.cpp PROPERTIES
    COMPILE_DEFINITIONS "TARN_CUDA_ARCH_LIST=${arch_list}")
endif()
