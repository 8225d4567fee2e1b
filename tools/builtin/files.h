// The files that are linked into `tarn`, byte for byte: the trained model and its sample log book.
// tools/builtin/README.md says how to make each of them.
#pragma once

#include <span>
#include <string_view>

namespace tarn::builtin {

std::span<const char> model_bytes();  // a GGUF file
std::string_view sample_text();       // JSON lines, tools/support/logbook.h

}  // namespace tarn::builtin
