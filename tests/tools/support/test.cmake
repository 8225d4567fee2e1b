# What defines malloc may only be linked to a program of its own.
target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_alloc_counter tarn_system_heap
                      tarn_tool_support)
