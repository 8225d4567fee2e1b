# toml++ keeps its values in std containers, which throw when memory runs out; the file catches it.
set_source_files_properties(${CMAKE_SOURCE_DIR}/runtime/config/toml_reader.cpp PROPERTIES
  COMPILE_OPTIONS "-fexceptions")
