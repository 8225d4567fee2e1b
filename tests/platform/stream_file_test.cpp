// Goal    a file that is written bears its name when it is whole, and not before; whatever fails
//         leaves what had the name, and nothing else; what is read is read whole or refused.
// Method  real files in a folder of the build: writers that end, give up, meet a limit and each
//         other; what a killed writer left.
#include "platform/io/stream_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace tarn::stream_file_test {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() : dir("stream_file_test") { fs::create_directory(dir.path()); }
  std::string at(const std::string& name) const { return dir.path() + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir.path())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  test::TempDir dir;
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string text(u64 n_bytes) {
  std::string text(n_bytes, ' ');
  for (u64 i = 0; i < n_bytes; ++i) text[i] = static_cast<char>('a' + i * 7 % 26);
  return text;
}

using Names = std::vector<std::string>;

TEST_CASE("a file is there when it is whole, with mode 0600, and replaces what had its name") {
  const Folder folder;
  for (const u64 n_bytes : {u64{0}, u64{1}, u64{5000}, 40 * kMiB}) {
    CAPTURE(n_bytes);
    const std::string want = text(n_bytes);
    FileWriter writer;
    REQUIRE(writer.create(folder.at("f").c_str()).has_value());
    REQUIRE(writer.write(bytes_of(want.substr(0, n_bytes / 3))).has_value());
    REQUIRE(writer.write(bytes_of(want.substr(n_bytes / 3))).has_value());
    REQUIRE(writer.finish().has_value());
    CHECK(folder.names() == Names{"f"});
    CHECK(text_of(folder.at("f")) == want);
    struct stat there {};
    REQUIRE(stat(folder.at("f").c_str(), &there) == 0);
    CHECK((there.st_mode & 07777) == 0600);

    FileReader reader;
    REQUIRE(reader.open(folder.at("f").c_str()).has_value());
    CHECK(reader.size_bytes() == n_bytes);
    std::string got(n_bytes, '\0');
    for (u32 pass = 0; pass < 2; ++pass) {
      REQUIRE(reader.read(std::as_writable_bytes(std::span(got))).has_value());
      CHECK(got == want);
      std::byte more{};
      const auto behind = reader.read({&more, 1});
      REQUIRE_FALSE(behind.has_value());
      CHECK(behind.error().status == Status::io_failed);
      REQUIRE(reader.rewind(0).has_value());
    }
  }
}

TEST_CASE("a writer that gives up, or meets a limit, leaves what was there") {
  const Folder folder;
  std::ofstream(folder.at("f")) << "old";
  {
    FileWriter writer;
    REQUIRE(writer.create(folder.at("f").c_str()).has_value());
    REQUIRE(writer.write(bytes_of(text(100))).has_value());
    CHECK(folder.names().size() == 2);
  }
  CHECK(folder.names() == Names{"f"});
  CHECK(text_of(folder.at("f")) == "old");

  rlimit limit{}, low{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  low = limit;
  low.rlim_cur = 5000;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);
  {
    FileWriter writer;
    const bool created = writer.create(folder.at("f").c_str()).has_value();
    const auto written = writer.write(bytes_of(text(6000)));
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    REQUIRE(created);
    REQUIRE_FALSE(written.has_value());
    CHECK(written.error().status == Status::io_failed);
    CHECK(written.error().figures[0].value == EFBIG);
    CHECK(std::string(written.error().hint).find("raise the limit") != std::string::npos);
  }
  std::signal(SIGXFSZ, handler);
  CHECK(folder.names() == Names{"f"});
  CHECK(text_of(folder.at("f")) == "old");
}

TEST_CASE("what a killed writer left is written over; one who writes now is not disturbed") {
  const Folder folder;
  std::ofstream(folder.at("f.part")) << text(9000);
  FileWriter first;
  REQUIRE(first.create(folder.at("f").c_str()).has_value());
  REQUIRE(first.write(bytes_of("first")).has_value());
  FileWriter second;
  const auto taken = second.create(folder.at("f").c_str());
  REQUIRE_FALSE(taken.has_value());
  CHECK(std::string(taken.error().hint).find("another process") != std::string::npos);
  REQUIRE(first.finish().has_value());
  CHECK(text_of(folder.at("f")) == "first");
  REQUIRE(second.create(folder.at("f").c_str()).has_value());
  REQUIRE(second.write(bytes_of("second")).has_value());
  REQUIRE(second.finish().has_value());
  CHECK(text_of(folder.at("f")) == "second");
  CHECK(folder.names() == Names{"f"});
}

TEST_CASE("a name that cannot be a file is refused with the reason") {
  const Folder folder;
  fs::create_directory(folder.at("folder"));
  REQUIRE(mkfifo(folder.at("pipe").c_str(), 0600) == 0);
  fs::create_symlink(folder.at("elsewhere"), folder.at("link.part"));
  struct Case {
    std::string path;
    Status status;
    const char* says;
  };
  const Case writes[] = {
      {folder.at("no/such/folder"), Status::io_failed, "does not exist"},
      {folder.at("folder"), Status::io_failed, "a folder or a device"},
      {folder.at("pipe"), Status::io_failed, "a folder or a device"},
      {folder.at("link"), Status::io_failed, "cannot be written"},
      {"", Status::invalid_request, "empty or too long"},
      {folder.at(std::string(2000, 'n')), Status::invalid_request, "empty or too long"},
  };
  for (const Case& c : writes) {
    CAPTURE(c.path);
    FileWriter writer;
    const auto created = writer.create(c.path.c_str());
    REQUIRE_FALSE(created.has_value());
    CHECK(created.error().status == c.status);
    CHECK(std::string(created.error().hint).find(c.says) != std::string::npos);
  }
  const Case reads[] = {
      {folder.at("nothing"), Status::io_failed, "cannot be opened"},
      {folder.at("folder"), Status::invalid_request, "not a regular file"},
      {folder.at("pipe"), Status::invalid_request, "not a regular file"},
  };
  for (const Case& c : reads) {
    CAPTURE(c.path);
    FileReader reader;
    const auto opened = reader.open(c.path.c_str());
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().status == c.status);
    CHECK(std::string(opened.error().hint).find(c.says) != std::string::npos);
  }
  CHECK_FALSE(fs::exists(folder.at("elsewhere")));
}

}  // namespace
}  // namespace tarn::stream_file_test
