// Reads files and ids that are given on the command line. "-" in place of a file's name is standard
// input in each option that is read here.
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"

namespace tarn::tools {

inline constexpr u64 kTextBytesMax = 256 * kMiB;  // more than the longest context has

// Returns every byte of a file or a pipe; "-" is standard input, which a process can read once.
// Throws Failure (exit code 74) also where nothing writes to a pipe for 3 s, and with exit code 78
// if there are more than `bytes_max`.
std::string read_file(const std::string& path, u64 bytes_max = kTextBytesMax);
// The same of a text that a C string will carry. Throws Failure where it has a zero byte.
std::string read_text(const std::string& path, u64 bytes_max = kTextBytesMax);
// Reads token ids separated by white space. Throws Failure with the first word that is not an id.
std::vector<u32> read_ids(const std::string& path);
// Warns on standard error that `what` (a prompt) is empty; `file`: its source, or "".
void warn_of_empty(const char* what, const std::string& file);
// Throws Failure (exit code 74) if the system refuses.
void write_file(const std::string& path, const void* bytes, u64 n_bytes);
// Checks, before the work whose result goes to `out`, that it can be written. Throws Failure: with
// exit code 64 if it is one of the input files. Empty names are ignored.
void check_output(const std::string& out, const std::vector<std::string>& read);

}  // namespace tarn::tools
