// The seeds of http_bytes: requests of each kind, behind the two bytes that say where they are cut.
#include <fstream>
#include <string>

namespace {

constexpr const char* kRequests[] = {
    "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
    ("POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
     "a;e=1\r\n{\"a\": 1234\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n"),
    "POST http://h/x HTTP/1.0\r\nContent-Length: 1\r\nConnection: keep-alive, close\r\n\r\nx",
    "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "GET / HTTP/1.1\nHost: a\n\n",
    "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
    "GET / HTTP/2.0\r\nHost : a\r\nHost: b\r\n\r\n",
    "ffffffffffffffff\r\n",
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  char n = 0;
  for (const char* each : kRequests) {
    std::ofstream(std::string(argv[1]) + "/request" + std::to_string(n), std::ios::binary)
        << std::string(2, n) << each;
    ++n;
  }
  return 0;
}
