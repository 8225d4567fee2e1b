// tools/builtin/files.h
//
// The files that are linked into `tarn`, byte for byte: the trained model and the log book that it
// is asked about. tools/builtin/README.md says how each is made again.
#pragma once

#include <span>
#include <string_view>

namespace tarn::builtin {

std::span<const char> model_bytes();  // a GGUF file
std::string_view sample_text();       // JSON lines, tools/support/logbook.h

}  // namespace tarn::builtin
