# TARN_SANITIZE=address,undefined or thread. TARN_FUZZ adds libFuzzer's coverage, in the folders
# whose code reads foreign bytes alone: the same build runs the tests.
if(TARN_SANITIZE)
  # vptr needs the type information that the core is built without.
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${TARN_SANITIZE};\
-fno-omit-frame-pointer;-g1;-fno-sanitize-recover=all;-fno-sanitize=vptr>")
  add_link_options(-fsanitize=${TARN_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # GCC has no such list
    add_compile_options(-fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/sanitizer_ignores.txt)
  endif()
endif()
if(TARN_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TARN_FUZZ needs clang: configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
endif()
set(TARN_FUZZED_DIRS runtime/config runtime/model runtime/text runtime/store runtime/reuse)
