#include "runtime/chat/scopes.h"

#include <algorithm>

namespace tarn::chat {

void Scopes::init(std::span<Binding> bindings, std::span<u32> newest) {
  bindings_ = bindings;
  newest_ = newest;
  std::fill(newest.begin(), newest.end(), u32{0});
}

std::optional<Value> Scopes::find(u32 name) const {
  u32 at = newest_[name];
  // Between the template's variables and the macro's lie those of the macro's callers.
  while (at >= n_global_ && at < base_) at = bindings_[at].hidden;
  return at != 0 ? std::optional(bindings_[at].value) : std::nullopt;
}

bool Scopes::bind(u32 name, const Value& value) {
  u32& newest = newest_[name];
  if (newest != 0 && newest >= scope_) {
    bindings_[newest].value = value;
    return true;
  }
  if (n_ >= bindings_.size()) return false;
  bindings_[n_] = {.name = name, .hidden = newest, .value = value};
  newest = n_++;
  return true;
}

void Scopes::drop_to(u32 n) {
  while (n_ > n) {
    --n_;
    newest_[bindings_[n_].name] = bindings_[n_].hidden;
  }
}

u32 Scopes::begin_scope() {
  if (is_in_template()) n_global_ = n_;
  const u32 outer = scope_;
  scope_ = n_;
  return outer;
}

void Scopes::end_scope(u32 outer) {
  drop_to(scope_);
  scope_ = outer;
}

Scopes::Frame Scopes::begin_frame() {
  if (is_in_template()) n_global_ = n_;
  const Frame outer{.scope = scope_, .base = base_};
  scope_ = n_;
  base_ = n_;
  return outer;
}

void Scopes::end_frame(Frame outer) {
  drop_to(base_);
  scope_ = outer.scope;
  base_ = outer.base;
}

}  // namespace tarn::chat
