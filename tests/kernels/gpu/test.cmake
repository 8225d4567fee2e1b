target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_gpu_emulated)
if(TARN_CUDA)
  target_compile_definitions(${TARN_TEST_TARGET} PRIVATE TARN_HAVE_CUDA=1)
endif()
