// Methods for measurements and tests: no key names one, SelectConfig::lab_method lends it.
#pragma once

#include <string_view>

#include "runtime/method/method.h"

namespace tarn::lab {

//   every-second     every second token: a method in the fewest lines (every_second.h)
//   sum-codes        a trained method in the fewest lines (sum_codes.h)
//   oracle           the k best by exact scores, which bounds every index; the scores have
//                    attention's own bits
//   random           k by a seeded hash of the slot: what a method that knows nothing reaches
//   shuffled-codes   pq, where each token has another one's codes. A suite of questions that does
//                    not notice it proves nothing
std::span<const method::Method> methods();
const method::Method* method_named(std::string_view name);  // nullptr: there is none
// A method by its name, of these or of select.method. False: there is none.
bool set_method(SelectConfig& config, std::string_view name);

u32 select_oracle(const method::SelectionArgs& args, const method::KeyPages& keys);
u32 select_random(const method::SelectionArgs& args, u64 seed);
// Where all heads draw from; head i, counted over all (cache layer, KV head), has random_at(it, i).
inline constexpr u64 kRandomSeed = 20240715;

}  // namespace tarn::lab
