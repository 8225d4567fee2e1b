#include "tools/support/passages.h"

#include <algorithm>
#include <string_view>

namespace tarn::tools {
namespace {

// A passage has this many bytes for each of n_max at most.
constexpr u64 kTokenBytesMax = 16;

// Where a passage may end, in a window of the text: best ones first.
std::vector<u64> borders(std::string_view window, char behind) {
  std::vector<u64> ends;
  for (u64 i = 1; i < window.size(); ++i) {
    const bool is_inside = (static_cast<u8>(window[i]) & 0xC0) == 0x80;
    if (behind == '\0' ? !is_inside : window[i - 1] == behind) ends.push_back(i);
  }
  return ends;
}

class Cutter {
 public:
  Cutter(ModelFile& model, u32 n_max) : model_(model), n_max_(n_max) {}

  // The longest passage that the text begins with.
  Passage first_of(std::string_view text) {
    const std::string_view window = text.substr(0, u64{n_max_} * kTokenBytesMax);
    if (window.size() == text.size() && fits(text)) return std::move(passage_);
    for (const char behind : {'\n', ' ', '\0'}) {
      const std::vector<u64> ends = borders(window, behind);
      // How many tokens a text has grows with its length, nearly.
      const auto end = std::ranges::partition_point(
          ends, [&](u64 n_bytes) { return fits(window.substr(0, n_bytes)); });
      if (end != ends.begin() && fits(window.substr(0, *(end - 1)))) return std::move(passage_);
    }
    const std::vector<u64> ends = borders(window, '\0');  // of what is no UTF-8 there may be none
    fits(window.substr(0, ends.empty() ? 1 : ends.front()));
    return std::move(passage_);
  }

 private:
  bool fits(std::string_view text) {
    passage_.text = text;
    passage_.ids = model_.encode(passage_.text, {});
    return passage_.ids.size() <= n_max_;
  }

  ModelFile& model_;
  u32 n_max_;
  Passage passage_;
};

}  // namespace

std::vector<Passage> cut_into_passages(ModelFile& model, const std::string& text, u32 n_max) {
  std::vector<Passage> passages;
  Cutter cutter(model, n_max);
  for (std::string_view rest = text; !rest.empty();) {
    passages.push_back(cutter.first_of(rest));
    rest.remove_prefix(passages.back().text.size());
  }
  return passages;
}

}  // namespace tarn::tools
