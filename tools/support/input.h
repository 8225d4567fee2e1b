// tools/support/input.h
//
// Files and ids as our programs take them from the command line.
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"

namespace tarn::tools {

// Every byte of a file, a pipe or /dev/stdin; nothing is stripped. Throws Failure (exit code 74).
std::string read_file(const std::string& path);
// Token ids with any white space between them. Throws Failure naming the first word that is no id.
std::vector<u32> read_ids(const std::string& path);
// Says on standard error that a prompt, say, is empty; `file`: where it came from, or "".
void warn_of_empty(const char* what, const std::string& file);
// Throws Failure (exit code 74) where the system refuses.
void write_file(const std::string& path, const void* bytes, u64 n_bytes);
// Throws Failure (exit code 64) where `out` is one of the files that are read. Empty names are
// none.
void refuse_overwriting(const std::string& out, const std::vector<std::string>& read);

}  // namespace tarn::tools
