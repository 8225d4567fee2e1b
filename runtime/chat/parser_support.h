// Shared by the parts of the parser. Private to this folder.
#pragma once

#include "runtime/chat/limits.h"
#include "runtime/chat/parser.h"

// Binds a node, or fails like the callee.
#define TARN_NODE(target, expression)     \
  NodeIdx target = kNoNode;               \
  if (const auto parsed = (expression)) { \
    target = *parsed;                     \
  } else {                                \
    return std::nullopt;                  \
  }

namespace tarn::chat {

// One level of nesting.
class Deeper {
 public:
  explicit Deeper(u32& depth) : depth_(depth) { ++depth_; }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  bool is_too_deep() const { return depth_ > kSourceDepthMax; }

 private:
  u32& depth_;
};

}  // namespace tarn::chat
