// Every second token of the middle, from its begin on: the smallest method there is.
#include "runtime/lab/methods.h"

namespace tarn::lab {
namespace {

class EverySecond final : public method::Reader {
 public:
  explicit EverySecond(const method::ReaderArgs& /*args*/) {}
  u32 choose(const method::SelectionArgs& args, const method::KeyPages& /*keys*/) const override {
    const method::TokenRanges& s = args.ranges;
    const method::SelectionScratch scratch =
        method::carve_selection(args, method::selection_shape(args, 0, 0));
    const u32 n = std::min(args.k, (s.n_middle() + 1) / 2);
    for (u32 i = 0; i < n; ++i) scratch.places[i] = 2 * i;
    return method::compose_slots(args, scratch.places, n);
  }
};
static_assert(sizeof(EverySecond) <= 64);

}  // namespace

method::Reader* make_every_second(std::byte* at, const method::ReaderArgs& args) {
  return method::make_reader<EverySecond>(at, args);
}

}  // namespace tarn::lab
