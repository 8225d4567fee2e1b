// Goal    A browser's question before a request is told from other requests; the reply names the
//         methods, and of the header names that are asked for those that may come.
// Method  Tables of heads and of header names.
#include "tools/tarnd/cors.h"

#include <doctest/doctest.h>

#include <string>

namespace tarn::daemon::cors_test {
namespace {

struct PreflightCase {
  const char* name;
  std::string head;
  bool is_one;
};
TEST_CASE("a preflight is OPTIONS with an Origin and a method") {
  const std::string kHost = "Host: h\r\n", kOrigin = "Origin: http://a\r\n",
                    kMethod = "Access-Control-Request-Method: POST\r\n";
  const PreflightCase kCases[] = {
      {"whole", "OPTIONS /x HTTP/1.1\r\n" + kHost + kOrigin + kMethod + "\r\n", true},
      {"other order", "OPTIONS /x HTTP/1.1\r\n" + kMethod + kOrigin + kHost + "\r\n", true},
      {"no origin", "OPTIONS /x HTTP/1.1\r\n" + kHost + kMethod + "\r\n", false},
      {"no method", "OPTIONS /x HTTP/1.1\r\n" + kHost + kOrigin + "\r\n", false},
      {"POST", "POST /x HTTP/1.1\r\n" + kHost + kOrigin + kMethod + "\r\n", false},
  };
  for (const PreflightCase& each : kCases) {
    CAPTURE(each.name);
    Head head;
    REQUIRE_FALSE(read_head(each.head, head).has_value());
    CHECK(is_preflight(head) == each.is_one);
  }
}

struct NamesCase {
  const char* asked;
  const char* allowed;
};
TEST_CASE("the header names that may come") {
  constexpr NamesCase kCases[] = {
      {"", "authorization, content-type, x-api-key"},
      {"authorization,content-type", "authorization, content-type, x-api-key"},
      {"X-Stainless-Lang , x-stainless-retry-count,OpenAI-Project",
       "authorization, content-type, x-api-key, x-stainless-lang, x-stainless-retry-count, "
       "openai-project"},
      {"cookie, x-other,,", "authorization, content-type, x-api-key"},
      {"x-stainless-a b, openai-\x80", "authorization, content-type, x-api-key"},
  };
  for (const NamesCase& each : kCases) {
    CAPTURE(each.asked);
    const std::string fields = preflight_fields(each.asked);
    const std::string line = std::string("Access-Control-Allow-Headers: ") + each.allowed + "\r\n";
    CHECK(fields.find(line) != std::string::npos);
    CHECK(fields.find("Access-Control-Allow-Methods: GET, HEAD, POST, DELETE\r\n") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace tarn::daemon::cors_test
