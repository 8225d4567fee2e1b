target_sources(${TARN_TEST_TARGET} PRIVATE ${CMAKE_SOURCE_DIR}/tests/tools/tarn/command_line.cpp
               ${CMAKE_SOURCE_DIR}/tools/tarn-bench/case.cpp
               ${CMAKE_SOURCE_DIR}/tools/tarn-bench/format.cpp
               ${CMAKE_SOURCE_DIR}/tools/tarn-bench/output.cpp
               ${CMAKE_SOURCE_DIR}/tools/tarn-bench/peer_options.cpp
               ${CMAKE_SOURCE_DIR}/tools/tarn-bench/recall.cpp
               ${CMAKE_SOURCE_DIR}/tools/tarn-bench/kv_model.cpp
               ${CMAKE_SOURCE_DIR}/tools/tarn-bench/planting.cpp)
target_compile_definitions(${TARN_TEST_TARGET} PRIVATE TARN_PROGRAM="$<TARGET_FILE:tarn-bench>"
                           TARN_VERSION="${PROJECT_VERSION}")
target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_tool_support tarn_gpu_emulated)
add_dependencies(${TARN_TEST_TARGET} tarn-bench)

# The script of the report's page, where there is a JavaScript engine.
find_program(TARN_NODE node)
if(TARN_NODE)
  add_test(NAME tools/tarn_bench/long_page
           COMMAND ${TARN_NODE} ${CMAKE_CURRENT_LIST_DIR}/long_page_test.js
                   ${CMAKE_SOURCE_DIR}/tools/tarn-bench/long_report.html)
  set_tests_properties(tools/tarn_bench/long_page PROPERTIES LABELS unit TIMEOUT 300)
endif()
