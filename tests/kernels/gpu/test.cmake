target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_gpu_emulated)
if(TARN_CUDA)
  target_compile_definitions(${TARN_TEST_TARGET} PRIVATE TARN_HAVE_CUDA=1)
endif()

# A hundred small builds, each with a run of the tests above.
find_program(TARN_DRILL_COMPILER NAMES clang++-14 clang++ NO_CACHE)
if(TARN_DRILL_COMPILER AND NOT TARN_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME kernels/gpu/drill_slow
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/kernels/gpu/drill.py
                   --compiler ${TARN_DRILL_COMPILER} --build ${CMAKE_BINARY_DIR}/drill
                   --link $<TARGET_FILE:tarn_test_support> ${TARN_URING_LIBRARY} ${TARN_CUDART})
  set_tests_properties(kernels/gpu/drill_slow PROPERTIES LABELS slow TIMEOUT 3600)
endif()
