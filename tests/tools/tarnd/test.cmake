target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_daemon)
target_compile_definitions(${TARN_TEST_TARGET} PRIVATE TARND_PROGRAM="$<TARGET_FILE:tarnd>")
add_dependencies(${TARN_TEST_TARGET} tarnd)
