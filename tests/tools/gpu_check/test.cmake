target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_gpu_check tarn_gpu_emulated)
# The script of the bundle, and the page about boards, which says what its script says.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_dependencies(${TARN_TEST_TARGET} gpu-bench)
  add_test(NAME tools/gpu_check/run
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/run_test.py
                   $<TARGET_FILE:gpu-bench>)
  add_test(NAME tools/gpu_check/napkin
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/bench/napkin.py
                   --check ${CMAKE_SOURCE_DIR}/kernels/NAPKIN.md)
  set_tests_properties(tools/gpu_check/run tools/gpu_check/napkin
                       PROPERTIES LABELS unit TIMEOUT 300)
endif()
