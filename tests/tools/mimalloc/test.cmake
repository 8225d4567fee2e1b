if(TARGET tarn_mimalloc)
  target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_mimalloc)
  target_compile_definitions(${TARN_TEST_TARGET} PRIVATE TARN_HAVE_MIMALLOC=1)
endif()
