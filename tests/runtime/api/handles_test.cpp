// Goal    a call without an engine or a session is refused, with a sentence and with zeros in what
//         it gives out.
// Method  every function of tarn.h that takes a handle, found in the header's text, with NULL.
#include <doctest/doctest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/runtime/api/handle_calls.h"

namespace tarn {
namespace {

using test::HandleCall;
using test::Handles;
using test::kHandleCalls;

TEST_CASE("the table of calls has every function that takes a handle") {
  std::ifstream file(std::string(TARN_SOURCE_DIR) + "/runtime/api/tarn.h");
  std::stringstream text;
  text << file.rdbuf();
  const std::string header = text.str();
  const std::regex declared(R"(TARN_API [\w ]+?\**(\w+)\(tarn_(?:engine|session)\* \w+)");
  std::set<std::string> want, got;
  for (auto i = std::sregex_iterator(header.begin(), header.end(), declared);
       i != std::sregex_iterator(); ++i) {
    want.insert((*i)[1].str());
  }
  for (const HandleCall& call : kHandleCalls) got.insert(call.name);
  CHECK(want.size() > 20);
  CHECK(want == got);
}

TEST_CASE("without a handle every call is refused, and gives out zeros") {
  const Handles none{.path = "/nowhere", .why = "is NULL"};
  for (const HandleCall& call : kHandleCalls) {
    CAPTURE(std::string(call.name));
    CHECK(call.is_refused(none));
  }
  auto plan = test::filled<tarn_plan>();
  CHECK(tarn_plan_memory(nullptr, &plan) == TARN_INVALID_REQUEST);
  CHECK(test::is_zeroed(plan));
}

}  // namespace
}  // namespace tarn
