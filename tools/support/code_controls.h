// tools/support/code_controls.h
//
// Negative controls of selection by codes: what an index is worth whose codes are wrong. A suite of
// questions that does not notice them proves nothing.
//
//   shuffled-codes     each token has another one's codes
//   keys-before-rope   keys are coded as before RoPE; queries are turned as ever. It tells
//                      something where what is looked for lies in pairs that turn over the document
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/config/code_control.h"
#include "runtime/model/model_spec.h"

namespace tarn::tools {

inline const std::vector<std::string> kCodeControls = {"shuffled-codes", "keys-before-rope"};

// One of them; before the first index is made it is told the model, what turns its keys
// (Engine::rope_inv_freq()), and how many slots a sequence may have.
class NamedControl : public CodeControl {
 public:
  virtual ~NamedControl() = default;
  virtual void set_model(const model::ModelSpec& /*spec*/, const f64* /*inv_freq*/,
                         u32 /*n_slots*/) {}
};
// nullptr for another name.
std::unique_ptr<NamedControl> code_control(const std::string& name);

}  // namespace tarn::tools
