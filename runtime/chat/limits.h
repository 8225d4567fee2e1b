// The bounds of parsing and rendering, with their reasons.
#pragma once

#include "platform/base/types.h"

namespace tarn::chat {

// The cost that a rendering may have, in bytes that are copied or compared: 50 ms of a slow core. A
// hostile template ends by it. The longest conversation of a 128K context takes a tenth of it with
// the slowest template in use.
inline constexpr i64 kWorkMax = i64{64} << 20;
inline constexpr i64 kStepWork = 64;   // a node that is evaluated, an item of a loop
inline constexpr i64 kFindWork = 192;  // a name that is looked for in a table
inline constexpr i64 kPutWork = 16;    // a piece that is written, beside its bytes

// Nesting, of the source and of what runs: macros that call each other, values in values. Both
// bound the stack of the caller's thread: each needs at most 96 KiB.
inline constexpr u32 kSourceDepthMax = 80;
inline constexpr u32 kDepthMax = 200;

inline constexpr u32 kNamesMax = 1024;     // different variables of one template
inline constexpr u32 kBindingsMax = 1024;  // variables at one time, in all scopes
inline constexpr u32 kJsonDepthMax = 64;
inline constexpr u32 kRangeMax = 100'000;  // Jinja2's sandbox has the same
inline constexpr u32 kArgumentsMax = 16;   // of a call

}  // namespace tarn::chat
