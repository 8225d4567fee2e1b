// The variables of a rendering, by the numbers of their names. Private to this folder.
//
// Scopes lie above each other: a name means its innermost variable. A macro sees its own variables
// and the template's, not those of its caller.
#pragma once

#include <optional>
#include <span>

#include "runtime/chat/value.h"

namespace tarn::chat {

struct Binding {
  u32 name = 0;
  u32 hidden = 0;  // the variable of this name below it; 0: none
  Value value{};
};

class Scopes {
 public:
  // bindings[0] stands for nothing: so only the template's own scope begins at 0. newest: for each
  // name, its innermost variable.
  void init(std::span<Binding> bindings, std::span<u32> newest);

  std::optional<Value> find(u32 name) const;
  // In the innermost scope. False: there is no room.
  bool bind(u32 name, const Value& value);

  u32 begin_scope();  // returns what end_scope() wants
  void end_scope(u32 outer);

  struct Frame {
    u32 scope = 0;
    u32 base = 0;
  };
  Frame begin_frame();  // of a macro
  void end_frame(Frame outer);

 private:
  void drop_to(u32 n);
  bool is_in_template() const { return scope_ == 0 && base_ == 0; }

  std::span<Binding> bindings_{};
  std::span<u32> newest_{};
  u32 n_ = 1;
  u32 scope_ = 0;     // where the innermost begins
  u32 base_ = 0;      // where the running macro's variables begin
  u32 n_global_ = 1;  // of the template's own scope, while another is open
};

}  // namespace tarn::chat
