# Warnings for all of our code, gcc and clang both, as errors unless TARN_WERROR is off. (What nvcc
# compiles gets its own from cuda.cmake.)
add_library(tarn_warnings INTERFACE)
target_compile_options(tarn_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wshadow;-Wpointer-arith;-Wcast-align;-Wundef;-Wvla>"
  $<$<COMPILE_LANGUAGE:CXX>:-Wconversion -Wsign-conversion -Wnon-virtual-dtor -Woverloaded-virtual>
  # GCC 12 sees an overlap in std::string's operator+ that is not there (GCC bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
  $<$<AND:$<BOOL:${TARN_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>)
