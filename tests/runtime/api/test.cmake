target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_alloc_counter)
