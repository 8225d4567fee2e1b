target_compile_definitions(${TARN_TEST_TARGET} PRIVATE
                           TARN_GPU_CHECK="$<TARGET_FILE:gpu-check-run>"
                           TARN_GPU_BENCH="$<TARGET_FILE:gpu-bench>")
target_link_libraries(${TARN_TEST_TARGET} PRIVATE tarn_gpu_check tarn_gpu_emulated)
add_dependencies(${TARN_TEST_TARGET} gpu-check-run gpu-bench)
