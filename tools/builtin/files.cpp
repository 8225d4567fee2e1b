#include "tools/builtin/files.h"

// The assembler reads the files; the build names them, and builds this again when they change.
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

TARN_INCLUDE_FILE(tarn_builtin_model, TARN_BUILTIN_MODEL);
TARN_INCLUDE_FILE(tarn_builtin_sample, TARN_BUILTIN_SAMPLE);

namespace tarn::builtin {

std::span<const char> model_bytes() { return {tarn_builtin_model_begin, tarn_builtin_model_end}; }
std::string_view sample_text() { return {tarn_builtin_sample_begin, tarn_builtin_sample_end}; }

}  // namespace tarn::builtin
