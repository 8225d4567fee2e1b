# allocations_after_ready is counted in the tests that demand zero.
target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_alloc_counter)
target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_tool_support)
