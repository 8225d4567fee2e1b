target_compile_definitions(${TARN_TEST_TARGET} PRIVATE TARN_PROGRAM="$<TARGET_FILE:tarn>")
target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_tool_support tarn_chat tarn_alloc_counter)
add_dependencies(${TARN_TEST_TARGET} tarn tarn-bench)

# `tarn` on a machine with a GPU that fails on demand: the same objects, but for those that say
# which GPU there is. A build with CUDA asks the real one.
if(NOT TARN_CUDA)
  set(support ${CMAKE_SOURCE_DIR}/tests/support)
  add_executable(tarn_fake_gpu ${CMAKE_CURRENT_LIST_DIR}/fake_gpu/system_gpu.cpp
                 ${support}/fake_device.cpp ${support}/seed.cpp $<TARGET_OBJECTS:tarn>
                 $<TARGET_OBJECTS:tarn_gpu_emulated>)
  get_property(modules GLOBAL PROPERTY TARN_MODULES)
  foreach(module ${modules})
    get_target_property(type ${module} TYPE)
    if(type STREQUAL "OBJECT_LIBRARY")
      set(objects $<TARGET_OBJECTS:${module}>)
      target_sources(tarn_fake_gpu PRIVATE
                     $<FILTER:${objects},EXCLUDE,/none/\(device|built_kernels\)[.]cpp>)
    endif()
  endforeach()
  target_include_directories(tarn_fake_gpu PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(tarn_fake_gpu PRIVATE ${TARN_CXX_FLAGS_COMMON})
  target_link_libraries(tarn_fake_gpu PRIVATE tarn_tool_support tarn_alloc_counter tarn_synth
                        tarn_quantize tarn_builtin tarn_chat tarn_client tarn_warnings
                        ${TARN_URING_LIBRARY} ${TARN_LIBMD} Threads::Threads)
  target_compile_definitions(${TARN_TEST_TARGET} PRIVATE
                             TARN_FAKE_GPU_PROGRAM="$<TARGET_FILE:tarn_fake_gpu>")
  add_dependencies(${TARN_TEST_TARGET} tarn_fake_gpu)
endif()
