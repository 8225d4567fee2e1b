// Links a file's bytes into the program: TARN_INCLUDE_FILE(name, PATH) declares name_begin[] and
// name_end[], followed by a zero. The assembler reads the file. CMake names it, and must rebuild
// the source when it changes (OBJECT_DEPENDS).
#pragma once

#define TARN_INCLUDE_FILE(name, path)   \
  __asm__(                              \
      ".pushsection .rodata\n"          \
      ".balign 64\n"                    \
      ".global " #name "_begin\n" #name \
      "_begin:\n"                       \
      ".incbin \"" path                 \
      "\"\n"                            \
      ".global " #name "_end\n" #name   \
      "_end:\n"                         \
      ".byte 0\n"                       \
      ".popsection\n");                 \
  extern "C" const char name##_begin[], name##_end[]
