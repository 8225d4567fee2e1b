# The subcommand itself, without the program around it.
target_sources(${TARN_TEST_TARGET} PRIVATE ${CMAKE_SOURCE_DIR}/tools/tarn/quantize.cpp)
