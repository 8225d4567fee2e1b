#include "tools/builtin/files.h"

#include "tools/support/include_file.h"

TARN_INCLUDE_FILE(tarn_builtin_model, TARN_BUILTIN_MODEL);
TARN_INCLUDE_FILE(tarn_builtin_sample, TARN_BUILTIN_SAMPLE);

namespace tarn::builtin {

std::span<const char> model_bytes() { return {tarn_builtin_model_begin, tarn_builtin_model_end}; }
std::string_view sample_text() { return {tarn_builtin_sample_begin, tarn_builtin_sample_end}; }

}  // namespace tarn::builtin
