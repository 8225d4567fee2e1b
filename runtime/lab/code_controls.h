// Negative controls of selection by codes: what an index is worth whose codes are wrong. A suite of
// questions that does not notice them proves nothing.
//
//   shuffled-codes     each token has another one's codes
//   keys-before-rope   keys are coded as before RoPE; queries are turned as ever. Such codes rank
//                      each key as if it stood at the session's first position, so they do harm
//                      where pairs that matter turn between there and the query
//
// A document is rarely what a session reads first, and RoPE makes of its place nothing but the
// distances in it: attention, and codes of turned keys, stay what they are if all positions grow by
// the same P. Codes of unturned keys do not. With (R_p x) a vector x turned to position p,
//
//   (R_(P+q) query) . key = (R_q query) . (R_(-P) key),
//
// so keys that are turned to -P do to a document at position 0 what keys before RoPE do to it at P.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/config/code_control.h"
#include "runtime/model/model_spec.h"

namespace tarn::lab {

inline const std::vector<std::string> kCodeControls = {"shuffled-codes", "keys-before-rope"};

// One of them; before the first index is made it is told the model, what turns its keys
// (Probe::rope_inv_freq()), and how many slots a sequence may have.
class NamedControl : public CodeControl {
 public:
  virtual ~NamedControl() = default;
  virtual void set_model(const model::ModelSpec& /*spec*/, const f64* /*inv_freq*/,
                         u32 /*n_slots*/) {}
};
// nullptr for another name. `first_position` is where keys-before-rope has the sequence begin (P
// above); it and a sequence's length stay below 2^32 together.
std::unique_ptr<NamedControl> code_control(const std::string& name, u32 first_position = 0);

}  // namespace tarn::lab
