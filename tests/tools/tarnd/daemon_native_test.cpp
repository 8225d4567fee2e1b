// Goal    The program as a service manager starts it: it is ready when it says so, refuses a wrong
//         configuration before it makes a socket, drains at SIGTERM, and answers by key over TCP.
// Method  Real processes, a notify socket of the test's own, raw bytes over their sockets.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "platform/base/types.h"
#include "tests/tools/tarnd/raw_http.h"

namespace tarn::daemon::daemon_native_test {
namespace {

using namespace test;

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/tarnd_life.XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { REQUIRE(std::system(("rm -rf " + path).c_str()) == 0); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name, const std::string& text) const {
    const std::string at = path + "/" + name;
    std::ofstream(at) << text;
    chmod(at.c_str(), 0600);
    return at;
  }
  std::string path;
};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Process {
 public:
  Process(const Folder& folder, const std::vector<std::string>& arguments,
          const std::string& notify = "")
      : out_path_(folder.path + "/out") {
    std::vector<std::string> words = {TARND_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    const int out = open(out_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    if (!notify.empty()) setenv("NOTIFY_SOCKET", notify.c_str(), 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void signal(int number) const { kill(pid_, number); }
  // -1: not within these seconds, or by a signal.
  int ended_within(int seconds) {
    for (int i = 0; i < seconds * 100; ++i) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
      usleep(10'000);
    }
    return -1;
  }
  bool says_within(const std::string& words, int seconds) const {
    for (int i = 0; i < seconds * 100; ++i) {
      if (said().find(words) != std::string::npos) return true;
      usleep(10'000);
    }
    return false;
  }
  std::string said() const { return text_of(out_path_); }

 private:
  std::string out_path_;
  pid_t pid_;
};

const std::string kChat =
    R"({"messages":[{"role":"user","content":"hello"}],"temperature":0,"max_tokens":)";

TEST_CASE("ready is said, chats are answered, and SIGTERM ends it with 0") {
  const Folder folder;
  const std::string notify = folder.path + "/n", path = folder.path + "/s";
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  notify.copy(at.sun_path, sizeof at.sun_path - 1);
  const int heard = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  REQUIRE(bind(heard, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  Process tarnd(folder, {"--listen", "unix://" + path, "-c", "2048"}, notify);
  const timeval most{20, 0};
  setsockopt(heard, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  std::string all;
  char bytes[256];
  while (all.find("READY=1") == std::string::npos) {
    const ssize_t n = recv(heard, bytes, sizeof bytes, 0);
    REQUIRE(n > 0);
    all.append(bytes, static_cast<size_t>(n));
  }
  int fd = connected_unix(path);
  send_all(fd, get("/health"));
  CHECK(status_of(rest_of(fd)) == 200);
  std::string first;
  for (int i = 0; i < 3; ++i) {
    fd = connected_unix(path);
    send_all(fd, post("/v1/chat/completions", kChat + "8}"));
    const std::string reply = rest_of(fd);
    CHECK(status_of(reply) == 200);
    const std::string choices = reply.substr(reply.find("\"choices\""));
    const std::string answer = choices.substr(0, choices.find("\"usage\""));
    if (first.empty()) first = answer;
    CHECK(answer == first);
  }
  fd = connected_unix(path);
  send_all(fd, post("/v1/chat/completions", kChat + "4,\"stream\":true}"));
  const std::string stream = rest_of(fd);
  CHECK(stream.find("data: [DONE]\n\n") != std::string::npos);
  fd = connected_unix(path);
  send_all(fd, post("/health", "{}"));
  const std::string other = rest_of(fd);
  CHECK(status_of(other) == 405);
  CHECK(other.find("Allow: GET") != std::string::npos);
  tarnd.signal(SIGTERM);
  CHECK(tarnd.ended_within(10) == 0);
  CHECK(access(path.c_str(), F_OK) != 0);
  CHECK(tarnd.said().find("hello") == std::string::npos);  // no text of a user
  close(heard);
}

TEST_CASE("SIGTERM lets a short answer end, and ends a long one in time with an error") {
  const Folder folder;
  const std::string path = folder.path + "/s";
  const std::string config = folder.file("c.toml", "[daemon]\ndrain_s = 1\n");
  Process tarnd(folder, {"--listen", "unix://" + path, "-c", "65536", "--config", config});
  REQUIRE(tarnd.says_within("event=ready", 30));
  const int fd = connected_unix(path);
  send_all(fd, post("/v1/completions",
                    R"({"prompt":"Log","max_tokens":60000,"ignore_eos":true,"stream":true})"));
  char byte = 0;
  REQUIRE(recv(fd, &byte, 1, 0) == 1);
  tarnd.signal(SIGTERM);
  const std::string reply = rest_of(fd);
  CHECK(reply.find("the daemon is stopping") != std::string::npos);
  CHECK(reply.find("[DONE]") == std::string::npos);
  CHECK(tarnd.ended_within(10) == 0);
}

TEST_CASE("a wrong configuration ends it with 78 before it makes a socket") {
  const Folder folder;
  const std::string path = folder.path + "/s";
  const std::string kTexts[] = {"[daemon]\ndrains = 1\n", "[daemon]\ndrain_s = -1\n",
                                "[kv]\ncontext = 1\n", "[daemon]\nkeys_file = '/nowhere'\n",
                                "[daemon]\nmemory_bytes = '2MiB'\n"};
  for (const std::string& text : kTexts) {
    CAPTURE(text);
    const std::string config = folder.file("c.toml", text);
    Process tarnd(folder, {"--listen", "unix://" + path, "--config", config});
    const int code = tarnd.ended_within(5);
    CHECK((code == 78 || (code == 74 && text.find("nowhere") != std::string::npos)));
    CHECK(access(path.c_str(), F_OK) != 0);
  }
  Process nowhere(folder, {"-c", "2048"});
  CHECK(nowhere.ended_within(5) == 78);
  Process unknown(folder, {"--nothing"});
  CHECK(unknown.ended_within(5) == 64);
  Process model(folder, {"--listen", "unix://" + path, "-m", folder.file("m", "no model")});
  CHECK(model.ended_within(5) == 78);
  CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE("--check-config prints the keys and the network's part of the plan") {
  const Folder folder;
  Process tarnd(folder, {"--listen", "unix:///run/x", "-c", "2048", "--check-config"});
  CHECK(tarnd.ended_within(5) == 0);
  for (const char* words :
       {"[daemon]", "drain_s = 15", "kv.context_tokens = 2048", "network", "67108864", "weights"}) {
    CAPTURE(words);
    CHECK(tarnd.said().find(words) != std::string::npos);
  }
}

TEST_CASE("over TCP a key, a host and no origin; SIGHUP takes new keys") {
  const Folder folder;
  const std::string keys = folder.file("keys", "ann key-of-ann\n");
  const auto port = static_cast<u16>(20'000 + getpid() % 10'000);
  Process tarnd(folder, {"--listen", "tcp://127.0.0.1:" + std::to_string(port), "--keys-file", keys,
                         "-c", "2048"});
  REQUIRE(tarnd.says_within("event=ready", 30));
  const auto ask = [&](const std::string& bytes) {
    const int fd = connected_tcp(port);
    send_all(fd, bytes);
    return status_of(rest_of(fd));
  };
  CHECK(ask(get("/health")) == 200);
  CHECK(ask(get("/v1/models")) == 200);
  CHECK(ask(get("/props")) == 401);
  CHECK(ask(get("/props", "Authorization: Bearer key-of-bob\r\n")) == 401);
  CHECK(ask(get("/props", "Authorization: Bearer key-of-ann\r\n")) == 200);
  CHECK(ask(get("/props", "x-api-key: key-of-ann\r\n")) == 200);
  CHECK(ask(get("/props", "x-api-key: key-of-ann\r\nOrigin: https://evil.example\r\n")) == 403);
  CHECK(ask("GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n") == 403);
  folder.file("keys", "bob key-of-bob\n");
  tarnd.signal(SIGHUP);
  REQUIRE(tarnd.says_within("event=reloaded", 10));
  CHECK(ask(get("/props", "x-api-key: key-of-ann\r\n")) == 401);
  CHECK(ask(get("/props", "x-api-key: key-of-bob\r\n")) == 200);
  folder.file("keys", "");
  tarnd.signal(SIGHUP);
  REQUIRE(tarnd.says_within("event=reload_failed", 10));
  CHECK(ask(get("/props", "x-api-key: key-of-bob\r\n")) == 200);
  tarnd.signal(SIGTERM);
  CHECK(tarnd.ended_within(10) == 0);
}

TEST_CASE("a model that does not run ends it, and the log names what shows every reason") {
  const Folder folder;
  const std::string head("GGUF\3\0\0\0", 8);
  const std::string model = folder.file("model.gguf", head + std::string(16, '\0'));
  Process tarnd(folder, {"-m", model, "--listen", "unix://" + folder.path + "/sock"});
  CHECK(tarnd.ended_within(20) == 78);
  CHECK(tarnd.said().find("; tarn inspect " + model + " shows every reason") != std::string::npos);
}

}  // namespace
}  // namespace tarn::daemon::daemon_native_test
