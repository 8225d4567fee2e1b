#include "runtime/chat/scopes.h"

#include <algorithm>

namespace tarn::chat {

Binding* Scopes::newest(u32 name, u32 begin, u32 end) const {
  for (u32 i = end; i > std::max<u32>(begin, 1); --i) {
    if (bindings_[i - 1].name == name) return &bindings_[i - 1];
  }
  return nullptr;
}

std::optional<Value> Scopes::find(u32 name) const {
  const Binding* found = newest(name, base_, n_);
  if (found == nullptr) found = newest(name, 0, std::min(n_global_, base_));
  return found != nullptr ? std::optional(found->value) : std::nullopt;
}

bool Scopes::bind(u32 name, const Value& value) {
  if (Binding* there = newest(name, scope_, n_)) {
    there->value = value;
    return true;
  }
  if (n_ >= bindings_.size()) return false;
  bindings_[n_++] = {name, value};
  return true;
}

u32 Scopes::begin_scope() {
  if (is_in_template()) n_global_ = n_;
  const u32 outer = scope_;
  scope_ = n_;
  return outer;
}

void Scopes::end_scope(u32 outer) {
  n_ = scope_;
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
  n_ = base_;
  scope_ = outer.scope;
  base_ = outer.base;
}

}  // namespace tarn::chat
