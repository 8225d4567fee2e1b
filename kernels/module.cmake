# The one kernel that may spill (TARN_CUDA_NO_SPILLS): with two CTAs an SM, matmat has 128 registers
# instead of 210, and spills sums at the borders of its groups of windows, four times a tile. The
# loop over windows does not spill. OCCUPANCY.md has the bytes.
set_source_files_properties(${CMAKE_SOURCE_DIR}/kernels/matmul/matmat_cuda.cu PROPERTIES
                            COMPILE_OPTIONS "")
