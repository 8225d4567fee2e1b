// runtime/config/config.h
//
// The whole configuration as one struct. visit() is the only list of keys: the TOML reader, the start-up
// print, `tarn --help` and the key table in configs/README.md are made from it.
#pragma once

#include <array>
#include <string_view>

#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

enum class KvTypeChoice : u8 { f16, q8_0 };
enum class LockChoice : u8 { off, attempt, require };

struct Config {
  u64 budget_bytes = 0;        // ceiling over everything; no default: only the owner of the box knows. 0 = not set
  u64 context_tokens = 0;      // KV is planned for this many tokens in all; 0: the model's context length
  u32 sessions_max = 4;
  u32 batch_rows_max = 512;    // rows of one step: prefill slice and decode batch together
  u32 n_threads = 0;           // 0: one per physical core
  u32 page_tokens = 64;
  KvTypeChoice kv_type = KvTypeChoice::f16;
  LockChoice lock = LockChoice::off;
  std::array<char, 16> isa{"auto"};
  std::array<char, 8> device{"auto"};
  std::array<char, 8> io{"auto"};      // auto | uring | threads
  bool huge_pages = true;
  bool pin_threads = true;

  // on(key, field, min, max, help) for numbers; on(key, field, names, help) for choices and text.
  template <class Visitor>
  void visit(Visitor&& on);
};

// Where a value came from, printed beside it at start.
enum class Origin : u8 { built_in, file, option };

}  // namespace tarn
