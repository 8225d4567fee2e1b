#include "tools/support/input.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void fail_io(const char* what, const std::string& path) {
  throw Failure{kExitIo, std::string(what) + " " + path + ": " + std::strerror(errno)};
}

}  // namespace

std::string read_file(const std::string& path, u64 bytes_max) {
  const File file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) fail_io("cannot open", path);
  std::string text;
  char piece[65536];
  while (const size_t n = std::fread(piece, 1, sizeof piece, file.get())) {
    text.append(piece, n);
    if (text.size() <= bytes_max) continue;
    throw Failure{kExitRefused, path + ": larger than " + std::to_string(bytes_max / 1024) +
                                    " KiB, the largest that is read here: is it the right file?"};
  }
  if (std::ferror(file.get()) != 0) fail_io("cannot read", path);
  return text;
}

std::vector<u32> read_ids(const std::string& path) {
  const std::string text = read_file(path);
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  std::vector<u32> ids;
  for (size_t begin = text.find_first_not_of(kSpace); begin != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    u32 id = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end) {
      throw Failure{kExitRefused, path + ": not a token id: '" +
                                      text.substr(begin, std::min<size_t>(end - begin, 32)) +
                                      "' (give whole numbers separated by white space)"};
    }
    ids.push_back(id);
    begin = text.find_first_not_of(kSpace, end);
  }
  return ids;
}

void warn_of_empty(const char* what, const std::string& file) {
  const std::string why =
      file.empty() ? "is a variable not set?" : "nothing is in " + file + "; is it the right file?";
  std::fprintf(stderr, "tarn warning: the %s is empty: %s\n", what, why.c_str());
}

void write_file(const std::string& path, const void* bytes, u64 n_bytes) {
  const File file(std::fopen(path.c_str(), "wb"), std::fclose);
  if (file == nullptr) fail_io("cannot create", path);
  if (std::fwrite(bytes, 1, n_bytes, file.get()) != n_bytes || std::fflush(file.get()) != 0) {
    fail_io("cannot write", path);
  }
}

void refuse_overwriting(const std::string& out, const std::vector<std::string>& read) {
  std::error_code ignored;  // opening the file reports that it does not exist
  if (!std::filesystem::is_regular_file(out, ignored)) return;
  for (const std::string& in : read) {
    if (!std::filesystem::equivalent(out, in, ignored)) continue;
    throw Failure{kExitUsage, out + ": is an input, and would be overwritten: name another file"};
  }
}

}  // namespace tarn::tools
