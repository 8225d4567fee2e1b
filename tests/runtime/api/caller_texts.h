// What many callers feed as text and as conversations, with the ids that the oracle's engine gives.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/runtime/api/alone.h"
#include "tests/support/seed.h"

namespace tarn::test {

struct Text {
  std::string text{};
  u32 flags = 0;
  std::vector<u32> ids{};
};

struct Texts {
  std::vector<Text> plain, chats;
  u32 end_token = 0;
};

inline Texts make_texts(Alone& alone) {
  Texts texts;
  constexpr const char* kWords[] = {"bakeri", "somu", "tel", "run", "a b", "x\n", "bread", "42"};
  Random random(7);
  const auto words = [&](u64 n) {
    std::string out;
    for (u64 i = 0; i < n; ++i)
      out += std::string(kWords[random.below(8)]) + (i + 1 < n ? " " : "");
    return out;
  };
  for (u32 i = 0; i < 16; ++i) {
    Text text{.text = words(1 + random.below(12)),
              .flags = i % 2 == 0 ? 0u : u32{TARN_ADD_SPECIAL}};
    text.ids = alone.ids_of_text(text.text, text.flags);
    texts.plain.push_back(text);
  }
  for (u32 family = 0; family < 4; ++family) {
    std::string messages;
    for (u32 turn = 0; turn < 3; ++turn) {
      std::string said = words(1 + random.below(6));
      std::replace(said.begin(), said.end(), '\n', ' ');
      messages += std::string(turn == 0 ? "" : ",") + R"({"role":")" +
                  (turn % 2 == 0 ? "user" : "assistant") + R"(","content":")" + said + R"("})";
      if (turn == 1) continue;
      Text chat{.text = "[" + messages + "]"};
      chat.ids = alone.ids_of_chat(chat.text);
      texts.chats.push_back(chat);
    }
  }
  while (tarn_is_end(alone.engine(), texts.end_token) == 0) ++texts.end_token;
  return texts;
}

}  // namespace tarn::test
