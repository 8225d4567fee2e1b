// Goal    whatever kind of file a path names, reading ends, within a bound of memory, and says what
//         to do; an output that cannot be written is refused before the work for it begins.
// Method  files, folders, devices, pipes with and without another end, names with a zero byte; each
//         with the exit code and the words that must come.
#include "tools/support/input.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"

namespace tarn::tools::input_test {
namespace {

struct Refused {
  int code = kExitOk;
  std::string text;
};

Refused refusal_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Failure& failure) {
    return {failure.code, failure.text};
  }
  return {};
}

struct Refusal {
  const char* name;
  std::string path;
  u64 bytes_max;
  int code;
  const char* words;
};

TEST_CASE("a file that is no plain file is read or written to its end, or refused") {
  const test::TempDir dir("input");
  const std::string pipe = dir.path() + "/pipe", plain = dir.path() + "/plain";
  REQUIRE(mkdir(dir.path().c_str(), 0700) == 0);
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  write_file(plain, "0123456789", 10);
  const std::string with_zero = plain + std::string("\0x", 2);
  const Refusal kRefusals[] = {
      {"endless", "/dev/zero", 64 * kKiB, kExitRefused, "larger than 64 KiB"},
      {"longer than the bound", plain, 9, kExitRefused, "is it the right file?"},
      {"a folder", dir.path(), kTextBytesMax, kExitIo, "directory"},
      {"absent", dir.path() + "/absent", kTextBytesMax, kExitIo, "No such file"},
      {"a pipe without a writer", pipe, kTextBytesMax, kExitIo, "start its writer first"},
      {"a zero byte in the name", with_zero, kTextBytesMax, kExitUsage, "zero byte"},
  };
  const std::string unread = dir.path() + "/unread";
  REQUIRE(mkfifo(unread.c_str(), 0600) == 0);
  Refused unwritten;  // waits for a reader while a pipe waits for its writer
  std::thread writer([&] { unwritten = refusal_of([&] { write_file(unread, "x", 1); }); });
  for (const Refusal& row : kRefusals) {
    CAPTURE(row.name);
    const Refused refused = refusal_of([&] { (void)read_file(row.path, row.bytes_max); });
    CHECK(refused.code == row.code);
    CHECK(refused.text.find(row.words) != std::string::npos);
  }
  writer.join();
  CHECK(unwritten.code == kExitIo);
  CHECK(unwritten.text.find("start its reader first") != std::string::npos);
  CHECK(read_file(plain, 10) == "0123456789");
  CHECK(read_file("/dev/null").empty());
}

TEST_CASE("a text that a C string will carry has no zero byte, and a failure prints them all") {
  const test::TempFile with_zero("zero"), without("no_zero");
  write_file(with_zero.path(), "a\0b", 3);
  write_file(without.path(), "a b", 3);
  CHECK(read_text(without.path()) == "a b");
  const Refused refused = refusal_of([&] { (void)read_text(with_zero.path()); });
  CHECK(refused.code == kExitRefused);
  CHECK(refused.text.find("(byte 1)") != std::string::npos);
  write_file(with_zero.path(),
             "1 2\0"
             "3",
             5);
  const Refused bad_id = refusal_of([&] { (void)read_ids(with_zero.path()); });
  CHECK(bad_id.text.find("white space") > bad_id.text.find('\0'));
  CHECK(escaped(bad_id.text).find("\\x00") != std::string::npos);
}

TEST_CASE("a pipe is read to the end that its writer makes, however late it begins") {
  const test::TempDir dir("input_pipe");
  const std::string pipe = dir.path() + "/pipe";
  REQUIRE(mkdir(dir.path().c_str(), 0700) == 0);
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const std::string text(300'000, 'x');  // more than a pipe holds
  for (const int pause_ms : {0, 200}) {
    std::thread writer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      const int fd = open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      CHECK(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
      close(fd);
    });
    CHECK(read_file(pipe) == text);
    writer.join();
  }
  int ends[2];  // as of a shell's <(true): the writer has gone already
  REQUIRE(::pipe(ends) == 0);
  close(ends[1]);
  CHECK(read_file("/proc/self/fd/" + std::to_string(ends[0])).empty());
  close(ends[0]);
}

TEST_CASE("an output is checked before the work: kinds, rights, inputs") {
  const test::TempDir dir("output");
  const std::string plain = dir.path() + "/plain";
  REQUIRE(mkdir(dir.path().c_str(), 0700) == 0);
  write_file(plain, "x", 1);
  const struct {
    const char* name;
    std::string out;
    int code;
    const char* words;
  } kRows[] = {
      {"none", "", kExitOk, ""},
      {"a new file", dir.path() + "/new", kExitOk, ""},
      {"a device", "/dev/null", kExitOk, ""},
      {"a folder", dir.path(), kExitIo, "name a file in it"},
      {"no folder", dir.path() + "/absent/new", kExitIo, "No such file"},
      {"an input", dir.path() + "/../" + dir.path().substr(dir.path().rfind('/') + 1) + "/plain",
       kExitUsage, "would be overwritten"},
  };
  for (const auto& row : kRows) {
    CAPTURE(row.name);
    const Refused refused = refusal_of([&] { check_output(row.out, {plain, ""}); });
    CHECK(refused.code == row.code);
    CHECK(refused.text.find(row.words) != std::string::npos);
  }
}

}  // namespace
}  // namespace tarn::tools::input_test
