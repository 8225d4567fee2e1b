// The reasons why a model is refused. Every check of a model gives its outcome to note(). Loading
// ends at the first refusal; with a visitor the checks go on, and the visitor sees each one. So
// there is one list of rules, whether one reason is wanted or all.
#pragma once

#include "platform/base/result.h"

namespace tarn::model {

class Refusals {
 public:
  using Visit = void (*)(void* context, const Error& why);
  // The first refusal ends the checks.
  Refusals() = default;
  // All are visited, in the order of the checks.
  Refusals(Visit visit, void* context) : visit_(visit), context_(context) {}

  // Returns what the caller must return to its own: an error that ends the checks, or nothing. Only
  // a refusal of the model can be noted; a disk or a memory that fails ends the checks.
  Result<void> note(Result<void> outcome) {
    if (outcome) return outcome;
    const Status status = outcome.error().status;
    const bool is_refusal = status == Status::invalid_model || status == Status::unsupported;
    if (visit_ == nullptr || !is_refusal) return outcome;
    if (n_++ == 0) first_ = outcome.error();
    visit_(context_, outcome.error());
    return {};
  }
  bool any() const { return n_ != 0; }
  // Returns the first that was noted.
  Result<void> outcome() const { return any() ? Result<void>(fail(first_)) : Result<void>(); }

 private:
  Visit visit_ = nullptr;
  void* context_ = nullptr;
  u64 n_ = 0;
  Error first_{};
};

}  // namespace tarn::model
