// Oracle: k best by exact scores, which bounds every index. The scores have attention's own bits.
#pragma once

#include "runtime/method/method.h"

namespace tarn::method {

u32 select_oracle(const SelectionArgs& args, const KeyPages& keys);

class OracleReader final : public Reader {
 public:
  explicit OracleReader(const ReaderArgs& /*args*/) {}
  u32 choose(const SelectionArgs& args, const KeyPages& keys) const override {
    return select_oracle(args, keys);
  }
};

}  // namespace tarn::method
