# toml++ keeps its values in std containers, which throw when memory runs out; the file catches it.
# It reads a file once, and takes GCC half as long again at -O3.
set_source_files_properties(${CMAKE_SOURCE_DIR}/runtime/config/toml_reader.cpp PROPERTIES
  COMPILE_OPTIONS "-fexceptions;${TARN_CXX_FLAGS_BRIEF}" SKIP_PRECOMPILE_HEADERS TRUE)
