// Goal    no JSON body ends tarnd, takes memory beyond its length, or becomes a request outside of
//         the table of fields.
// Method  libFuzzer, at each endpoint: what is taken lies within the table's bounds, and what is
//         refused says why.
#include <cmath>
#include <string>

#include "tests/fuzz/fuzz_input.h"
#include "tools/tarnd/body_reader.h"

namespace {

using namespace tarn;
using namespace tarn::daemon;

using tarn::test::require;

void check_bounds(const Body& body) {
  require(body.temperature >= 0 && body.temperature <= 100);
  require(body.top_p >= 0 && body.top_p <= 1 && body.min_p >= 0 && body.min_p <= 1);
  require(body.n >= 1 && body.n <= 8);
  require(body.max_tokens >= -1);
  for (const f64 value : {body.repeat_penalty, body.presence_penalty, body.frequency_penalty}) {
    require(std::isfinite(value));
  }
  for (const std::string& stop : body.stops) require(!stop.empty() && stop.size() <= 128);
}

// Escapes alone shorten a text, so no copy is longer than the body; an id has a digit at least.
void check_size(const Body& body, u64 n_bytes) {
  u64 n = body.messages_json.size() + body.template_arguments_json.size() + body.content.size() +
          body.name.size() + body.session.size() + body.tokens.size();
  for (const Prompt& prompt : body.prompts) n += prompt.text.size() + prompt.ids.size();
  for (const std::string& stop : body.stops) n += stop.size();
  require(n <= n_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const u8* data, size_t n_bytes) {
  constexpr Endpoint kEndpoints[] = {kChat,       kCompletions,   kTokenize,
                                     kDetokenize, kApplyTemplate, kIngest};
  test::FuzzInput input(data, n_bytes);
  const u8 which = input.number<u8>();
  const Endpoint endpoint = kEndpoints[which % std::size(kEndpoints)];
  std::string text(input.text(n_bytes));
  const u64 n_text = text.size();
  Body body;
  if (const auto error = read_body(endpoint, text, body)) {
    require(error->status >= 400 && error->status < 500 && !error->message.empty());
    return 0;
  }
  check_bounds(body);
  check_size(body, n_text);
  return 0;
}
