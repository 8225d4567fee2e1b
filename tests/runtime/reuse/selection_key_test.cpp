// Goal    every key of select either changes what a saved session and `tarn verify` hold for, or is
//         named as one that has no say; a new key is one of the two.
// Method  each key is changed by itself.
#include "runtime/reuse/selection_key.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <type_traits>

namespace tarn::reuse::selection_key_test {
namespace {

store::Key key_of(const SelectConfig& config) { return selection_key(config, 2, 0); }

// Changes the key with this number, and remembers its name; the last one was there before.
struct ChangeOne {
  u32 wanted = 0, n = 0;
  std::string name{};
  template <class Field, class... Rest>
  void operator()(const char* key, Field& field, const Rest&...) {
    if (n++ != wanted) return;
    name = key;
    if constexpr (std::is_same_v<Field, bool>) {
      field = !field;
    } else if constexpr (std::is_enum_v<Field>) {
      field = static_cast<Field>(static_cast<u32>(field) + 1);
    } else if constexpr (std::is_integral_v<Field>) {
      ++field;
    } else {
      field[0] = 'x';
    }
  }
};

TEST_CASE("every key of select has a say, or is named as one that has none") {
  SelectConfig config;
  config.method = SelectMethod::pq;
  config.iterations = 0;
  const store::Key before = key_of(config);
  u32 n_silent = 0;
  for (u32 i = 0;; ++i) {
    SelectConfig changed = config;
    ChangeOne change{.wanted = i};
    SelectConfig::visit_fields(changed, change);
    if (change.name.empty()) break;
    CAPTURE(change.name);
    const bool has_no_say =
        std::ranges::find(kNoSayInSelection, change.name) != std::end(kNoSayInSelection);
    CHECK((key_of(changed) == before) == has_no_say);
    n_silent += has_no_say;
  }
  CHECK(n_silent == std::size(kNoSayInSelection));  // all of them are keys
}

TEST_CASE("the id, the type of KV, and costs where no number is set have a say") {
  SelectConfig config;
  config.iterations = 8;
  const store::Key before = key_of(config);
  CHECK_FALSE(selection_key(config, 3, 0) == before);
  CHECK_FALSE(selection_key(config, 2, 1) == before);
  SelectConfig costed = config;
  costed.cost.token_ps = 7;
  CHECK(key_of(costed) == before);
  config.iterations = 0;
  costed.iterations = 0;
  CHECK_FALSE(key_of(costed) == key_of(config));
}

}  // namespace
}  // namespace tarn::reuse::selection_key_test
