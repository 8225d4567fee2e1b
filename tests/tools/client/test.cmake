target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_client)
