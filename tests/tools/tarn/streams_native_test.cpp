// Goal    what `tarn` does not own, it checks: closed standard streams, few descriptors, files that
//         are no plain files, media that cannot be written. Each ends at once, with a code and a
//         sentence, and takes nothing for what it is not.
// Method  the program as a shell starts it, in a table of lines with the exit code and the words
//         that standard error must have; $TARN is the program, $DIR a folder, $PIPE a named pipe.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <string>

#include "tests/support/slow_build.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/exit_code.h"
#include "tools/support/input.h"

namespace tarn::streams_native_test {
namespace {

using tools::kExitIo;
using tools::kExitOk;
using tools::kExitRefused;
using tools::kExitUsage;

struct Row {
  const char* name;
  const char* line;
  int code;
  const char* said;  // on standard error
};

// A sanitizer reserves more addresses than any bound.
constexpr const char* kBound = test::kSlowBuild ? "true" : "ulimit -v 4000000";

constexpr Row kRows[] = {
    {"chat without an input", "$TARN chat -n 3 <&-", kExitOk, ""},
    {"no output", "$TARN run -n 3 -p Hi >&-", kExitIo, "is it closed"},
    {"no output of JSON", "$TARN run -n 3 -p Hi --json >&-", kExitIo, "is it closed"},
    {"a full output", "$TARN run -n 3 -p Hi >/dev/full", kExitIo, "its disk full"},
    {"no stream at all", "$TARN run -n 3 -p Hi <&- >&- 2>&-", kExitIo, ""},
    {"a reader that goes", "trap '' PIPE; $TARN run -n 60 -p Hi | true; exit ${PIPESTATUS[0]}",
     kExitIo, "is it closed"},
    // Its context would be full first.
    {"a chat for nobody", "yes Hi | head -20000 | $TARN chat -n 3 >/dev/full", kExitIo,
     "its disk full"},
    {"five descriptors", "ulimit -n 5; $TARN run -n 3 -p Hi", kExitIo, "RLIMIT_NOFILE"},
    {"ten are enough", "ulimit -n 10; $TARN run -n 3 -p Hi --session a --store $DIR/ten", kExitOk,
     "kept"},
    {"a model of zeros", "$TARN run -m /dev/zero -p Hi", kExitIo, "copy what it gives"},
    {"a model in a pipe", "$TARN run -m <(true) -p Hi", kExitIo, "copy what it gives"},
    {"a folder as a model", "$TARN inspect $DIR", kExitIo, "this is a folder"},
    {"a model in a file", "$TARN inspect $DIR/text/model", kExitIo, "no folder"},
    {"an endless configuration", "$TARN run --config /dev/zero -p Hi", kExitRefused,
     "larger than 64 KiB"},
    {"an endless prompt", "$BOUND; $TARN run -f /dev/zero", kExitRefused, "is it the right file"},
    {"endless ids", "$BOUND; $TARN run --prompt-ids /dev/zero", kExitRefused,
     "is it the right file"},
    {"an endless template", "$TARN run --chat -p Hi --chat-template /dev/zero", kExitRefused,
     "is it the right file"},
    {"a template that a C string would cut",
     "printf 'a\\0b' >$DIR/zero; $TARN run --chat -p Hi --chat-template $DIR/zero", kExitRefused,
     "zero byte"},
    {"ids behind a zero byte", "printf '1 2\\0 3' >$DIR/ids; $TARN run --prompt-ids $DIR/ids",
     kExitRefused, "separated by white space"},
    {"a pipe that nobody writes", "$TARN run -f $PIPE", kExitIo, "start its writer first"},
    {"a profile for a pipe that nobody reads", "$TARN verify --text $DIR/text --record $DIR",
     kExitIo, "name a file in it"},
    {"a prompt from a pipe", "printf Hi | $TARN run -n 3 -f /dev/stdin", kExitOk, ""},
    {"a prompt of another program", "$TARN run -n 3 -f <(printf Hi)", kExitOk, ""},
    {"settings of another program", "$TARN run -n 3 -p Hi --config <(echo kv.type = \\'q8_0\\')",
     kExitOk, ""},
    {"a folder that others read",
     "mkdir -m 755 $DIR/open; $TARN run -p Hi -n 2 --session a "
     "--store $DIR/open",
     kExitIo, "chmod 700"},
    {"a file as a store", "$TARN run -p Hi -n 2 --session a --store $DIR/text", kExitIo, "folder"},
    {"a store that is not used", "$TARN run -p Hi -n 2 --store $DIR/unused", kExitOk,
     "--store is not used"},
    {"a store that eval does not use", "$TARN eval --text $DIR/text --store $DIR/unused", kExitOk,
     "--store is not used"},
};

TEST_CASE("what the process does not own is checked, said, and waited for by none") {
  const test::TempDir dir("streams");
  REQUIRE(mkdir(dir.path().c_str(), 0700) == 0);
  const std::string pipe = dir.path() + "/pipe", text = "one two three four five";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  tools::write_file(dir.path() + "/text", text.data(), text.size());
  // Inherited descriptors count among those of a limit.
  const std::string names =
      "for fd in 3 4 5 6 7 8 9; do eval \"exec $fd>&-\"; done; "
      "TARN=" TARN_PROGRAM "; DIR='" +
      dir.path() + "'; PIPE='" + pipe + "'; BOUND='" + kBound + "'; ";
  for (const Row& row : kRows) {
    CAPTURE(std::string(row.name));
    const test::Ended ended =
        test::run_program("/usr/bin/timeout", {"20", "/bin/bash", "-c", names + row.line});
    CAPTURE(ended.err);
    CHECK(ended.exit_code == row.code);
    CHECK(ended.err.find(row.said) != std::string::npos);
  }
}

TEST_CASE("where all KV is on the disk, nothing says that the store is not used") {
  const test::TempDir dir("streams_used");
  const test::Ended ended =
      test::run_tarn({"run", "-p", "Hi", "-n", "2", "--store", dir.path(), "--session", "a"});
  CHECK(ended.exit_code == kExitOk);
  CHECK(ended.err.find("not used") == std::string::npos);
}

}  // namespace
}  // namespace tarn::streams_native_test
