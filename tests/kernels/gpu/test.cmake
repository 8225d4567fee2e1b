target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_gpu_emulated)
if(TARN_CUDA)
  target_compile_definitions(${TARN_TEST_TARGET} PRIVATE TARN_HAVE_CUDA=1)
endif()

# Where there is an nvcc, a build with CUDA or not: what CI builds; every architecture is a minute.
if(NOT TARN_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(occupancy ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/kernels/gpu/occupancy.py
                --compiler ${CMAKE_CXX_COMPILER})
  if(TARN_CUDA)
    list(APPEND occupancy --nvcc ${CMAKE_CUDA_COMPILER})
  endif()
  add_test(NAME kernels/gpu/occupancy COMMAND ${occupancy} --archs 87)
  add_test(NAME kernels/gpu/occupancy_slow COMMAND ${occupancy})
  set_tests_properties(kernels/gpu/occupancy PROPERTIES LABELS "kernel;cuda" TIMEOUT 600)
  set_tests_properties(kernels/gpu/occupancy_slow PROPERTIES LABELS slow TIMEOUT 3600)
  set_tests_properties(kernels/gpu/occupancy kernels/gpu/occupancy_slow PROPERTIES
                       SKIP_RETURN_CODE 77)
endif()

# A hundred small builds, each with a run of the tests above.
find_program(TARN_DRILL_COMPILER NAMES clang++-14 clang++ NO_CACHE)
if(TARN_DRILL_COMPILER AND NOT TARN_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME kernels/gpu/drill_slow
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/kernels/gpu/drill.py
                   --compiler ${TARN_DRILL_COMPILER} --build ${CMAKE_BINARY_DIR}/drill
                   --link $<TARGET_FILE:tarn_test_support> $<TARGET_FILE:tarn_tool_support>
                   $<TARGET_FILE:tarn_lab> ${TARN_URING_LIBRARY} ${TARN_LIBMD} ${TARN_CUDART})
  set_tests_properties(kernels/gpu/drill_slow PROPERTIES LABELS slow TIMEOUT 3600)
endif()
