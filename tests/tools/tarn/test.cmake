target_compile_definitions(${TARN_TEST_TARGET} PRIVATE TARN_PROGRAM="$<TARGET_FILE:tarn>")
target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_tool_support tarn_alloc_counter)
add_dependencies(${TARN_TEST_TARGET} tarn)
