// The whole configuration as one struct. visit() is the only list of keys. The TOML reader, the
// start-up print, `tarn --help` and the key table in configs/README.md use it.
//
//   memory   a Config is a plain value; reading TOML uses the host's heap and frees all of it
//   thread   any
//   errors   invalid_config with the key at fault and, from a text, its line and column
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "platform/base/result.h"
#include "platform/base/types.h"
#include "runtime/config/box_config.h"
#include "runtime/config/reuse_config.h"
#include "runtime/config/select_config.h"
#include "runtime/config/store_config.h"

namespace tarn {

enum class KvTypeChoice : u8 { f16, q8_0, q4_0 };
enum class LockChoice : u8 { off, attempt, require };
enum class EmbeddingChoice : u8 { memory, disk };
enum class QualityChoice : u8 { fixed, adaptive };

// The names of a choice; an enum's are in the order of its values.
using ChoiceNames = std::span<const char* const>;
inline constexpr const char* kKvTypeNames[] = {"f16", "q8_0", "q4_0"};
inline constexpr const char* kLockNames[] = {"off", "try", "require"};
inline constexpr const char* kEmbeddingNames[] = {"memory", "disk"};
inline constexpr const char* kQualityNames[] = {"fixed", "adaptive"};
inline constexpr const char* kIsaNames[] = {"auto", "generic", "avx2", "avx512"};
inline constexpr const char* kDeviceNames[] = {"auto", "cpu", "cuda"};
inline constexpr const char* kIoNames[] = {"auto", "uring", "threads"};

inline constexpr u64 kBudgetBytesMax = 16384 * kGiB;
inline constexpr u64 kContextTokensMax = u64{1} << 24;  // RoPE's angles are exact enough below it

struct Config {
  u64 budget_bytes = 0;  // no default: only the owner of the box knows what else runs there
  u64 device_budget_bytes = 0;
  u64 driver_limit_bytes = 512 * kMiB;
  u64 kv_memory_bytes = 0;
  u64 context_tokens = 0;  // planned slots of all sessions together
  u32 sessions_max = 4;
  u32 batch_rows_max = 512;
  u32 running_max = 16;
  u32 waiting_max = 64;
  u32 blends_max = 4;
  u32 token_gap_ms = 250;
  u64 chat_memory_bytes = 0;
  u64 text_scratch_bytes = 2 * kMiB;  // of the tokenizer at most; no key: the demo takes none
  u32 n_threads = 0;
  u32 page_tokens = 64;
  KvTypeChoice kv_type = KvTypeChoice::f16;
  LockChoice lock = LockChoice::off;
  EmbeddingChoice embedding = EmbeddingChoice::memory;
  std::array<char, 65> model_sha256{};
  std::array<char, 16> isa{"auto"};
  std::array<char, 8> device{"auto"};
  u32 device_index = 0;
  u32 device_priority = 0;
  std::array<char, 8> io{"auto"};
  bool huge_pages = true;
  bool pin_threads = false;
  SelectConfig select{};
  StoreConfig store{};
  ReuseConfig reuse{};
  QualityChoice quality = QualityChoice::fixed;
  BoxText box_profile{};
  BoxConfig box{};  // no key: what box_profile says, which a configuration's text sets with it

  // Calls, in a fixed order:
  //   on(key, field, min, max, help)  for numbers, u32 or u64; a key that ends in _bytes is a size
  //   on(key, field, names, help)     for choices: an enum, or text that is one of the names
  //   on(key, field, help)            for true or false, and for a text (an array of char)
  template <class Visitor>
  void visit(Visitor&& on) {
    visit_fields(*this, on);
  }
  template <class Visitor>
  void visit(Visitor&& on) const {
    visit_fields(*this, on);
  }

 private:
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor& on);
};

template <class Self, class Visitor>
void Config::visit_fields(Self& self, Visitor& on) {
  on("memory.budget_bytes", self.budget_bytes, u64{0}, kBudgetBytesMax,
     "ceiling over everything the engine reserves; 0: not set");
  on("memory.lock", self.lock, ChoiceNames(kLockNames),
     "lock the memory against swapping; require: refuse to start where that fails");
  on("memory.huge_pages", self.huge_pages, "ask for transparent huge pages (not for a GPU)");
  on("model.embedding", self.embedding, ChoiceNames(kEmbeddingNames),
     "where the embedding table is; disk: stays in the model's file and is read row by row, unless "
     "the output shares the table");
  on("model.sha256", self.model_sha256,
     "SHA-256 of the model's file, 64 hexadecimal digits; opening reads the whole file once more "
     "and "
     "refuses another one; empty: not checked");
  on("kv.context_tokens", self.context_tokens, u64{0}, kContextTokensMax,
     "tokens of KV of all sessions together; 0: the model's context length");
  on("kv.memory_bytes", self.kv_memory_bytes, u64{0}, kBudgetBytesMax,
     "memory for KV; the rest of KV goes to the store; 0: all KV, or with a store what the budget "
     "leaves");
  on("kv.type", self.kv_type, ChoiceNames(kKvTypeNames), "number format of K and V");
  on("kv.page_tokens", self.page_tokens, u64{16}, u64{256}, "tokens of a page, a multiple of 16");
  SelectConfig::visit_fields(self.select, on);
  StoreConfig::visit_fields(self.store, on);
  ReuseConfig::visit_fields(self.reuse, on);
  on("control.quality", self.quality, ChoiceNames(kQualityNames),
     "fixed: what changes a token follows from model, length, configuration and box.profile; "
     "adaptive: "
     "also from how fast the box is now, and where KV lies");
  on("box.profile", self.box_profile,
     "what work costs on this box with this model, as tarn calibrate -o FILE measures and writes "
     "it; empty: not measured");
  on("engine.sessions_max", self.sessions_max, u64{1}, u64{1024}, "open sessions at a time");
  on("engine.batch_rows_max", self.batch_rows_max, u64{1}, u64{8192},
     "rows of one step: prefill slice and decode batch together");
  on("engine.running_max", self.running_max, u64{1}, u64{1024},
     "sessions that compute or generate at a time, and one of each other tenant; others wait");
  on("engine.waiting_max", self.waiting_max, u64{1}, u64{1024},
     "sessions that wait for their turn, and one of each other tenant; further ones are told to "
     "try later");
  on("engine.blends_max", self.blends_max, u64{1}, u64{64},
     "prompts with chunks that are blended at a time; others wait");
  on("engine.token_gap_ms", self.token_gap_ms, u64{0}, u64{60'000},
     "while a prompt is read, running answers still get a token at least this often, in "
     "milliseconds, or once a step of 8 prompt tokens if that takes longer; 0: no bound");
  on("chat.memory_bytes", self.chat_memory_bytes, u64{0}, kGiB,
     "memory that one conversation is rendered in, if the model has a chat template; 0: 1 MiB and "
     "256 bytes for each token of the context, so what fits in it can be rendered");
  on("cpu.threads", self.n_threads, u64{0}, u64{1024}, "worker threads; 0: one per physical core");
  on("cpu.pin_threads", self.pin_threads,
     "keep each worker thread on its core; slower where other programs run");
  on("cpu.isa", self.isa, ChoiceNames(kIsaNames),
     "instruction set of the kernels; a name that this machine lacks is an error");
  on("device.kind", self.device, ChoiceNames(kDeviceNames), "where the model runs");
  on("device.index", self.device_index, u64{0}, u64{63},
     "number of the GPU, as nvidia-smi -L counts them (CUDA_DEVICE_ORDER=PCI_BUS_ID)");
  on("device.priority", self.device_priority, u64{0}, u64{5},
     "priority of this engine's work on the GPU over other programs'; 0: the same");
  on("device.budget_bytes", self.device_budget_bytes, u64{0}, kBudgetBytesMax,
     "ceiling over a discrete GPU's own memory; 0: all of it, with KV on a disk nine tenths of "
     "what is free at the start; an integrated GPU has none of its own");
  on("device.driver_limit_bytes", self.driver_limit_bytes, u64{0}, kBudgetBytesMax,
     "memory that the GPU's driver may take for kernels, graphs and libraries");
  on("io.backend", self.io, ChoiceNames(kIoNames), "how files are read");
}

// The source of a value, printed beside it at start.
enum class Origin : u8 { built_in, file, option };
inline constexpr u32 kConfigKeysMax = 96;
using Origins = std::array<Origin, kConfigKeysMax>;  // in the order of visit()

// The index of `key` in the order of visit(); kConfigKeysMax if there is no such key.
u32 key_idx(std::string_view key);
// The near known key with the smallest edit distance (Wagner and Fischer 1974) to `name`; the first
// one of several. A key is near with edits for at most a third of it, or with the same last part.
// Returns "" if none is near. Static storage.
const char* nearest_key(std::string_view name);

// Whether a text is 64 hexadecimal digits, of either case.
bool is_sha256(std::string_view text);

// Checks every range and every relation between keys; the error names the first that is broken.
// Call it last, when values from all sources are set.
Result<void> config_validate(const Config& config);

inline constexpr u64 kConfigTextBytesMax = 64 * kKiB;
// Returns `base` overridden by the keys of a TOML text, validated. Unknown and repeated keys, wrong
// types and values out of range are errors. `origins`, if given, gets Origin::file for the keys of
// the text.
Result<Config> config_from_toml(std::string_view text, Config base, Origins* origins = nullptr);

// Parses "1048576", "512MiB", "4.5GiB" (B, KiB, MiB, GiB, TiB; at most six decimals, rounded down
// to a byte). No sign, no space, no decimal units: 6GB and 6G are ambiguous and refused.
Result<u64> parse_bytes(std::string_view text);

}  // namespace tarn
