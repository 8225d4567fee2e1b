target_compile_definitions(${TARN_TEST_TARGET} PRIVATE
                           TARN_GPU_CHECK="$<TARGET_FILE:gpu-check-run>"
                           TARN_GPU_BENCH="$<TARGET_FILE:gpu-bench>")
target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_gpu_check tarn_gpu_emulated)
add_dependencies(${TARN_TEST_TARGET} gpu-check-run gpu-bench)
# The page about boards says what its script says.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME tools/gpu_check/napkin
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/bench/napkin.py
                   --check ${CMAKE_SOURCE_DIR}/kernels/NAPKIN.md)
  set_tests_properties(tools/gpu_check/napkin PROPERTIES LABELS unit TIMEOUT 60)
endif()
