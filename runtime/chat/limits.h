// The bounds of parsing and rendering, with their reasons.
#pragma once

#include "platform/base/types.h"

namespace tarn::chat {

// A hostile template ends within these: 50 ms of a slow core. The longest conversation of a 128K
// context takes about a tenth of it with the slowest template in use.
inline constexpr i64 kStepsMax = 1'000'000;

// A step is a node that is evaluated, or this many bytes that are copied or compared.
inline constexpr u64 kBytesAStep = 64;

// Nesting in the source: of expressions, of statements, of macros that call each other. It bounds
// the stack of the thread that renders: about 0.5 KiB a level.
inline constexpr u32 kDepthMax = 200;

inline constexpr u32 kNamesMax = 1024;     // different variables of one template
inline constexpr u32 kBindingsMax = 1024;  // variables at one time, in all scopes
inline constexpr u32 kJsonDepthMax = 64;
inline constexpr u32 kRangeMax = 100'000;  // Jinja2's sandbox has the same
inline constexpr u32 kArgumentsMax = 16;   // of a call

}  // namespace tarn::chat
