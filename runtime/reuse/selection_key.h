// The settings that decide which tokens a step reads, as one hash: of every key of select that has
// a say, by its name and value, and the type of KV. A saved session restores its index under an
// equal one.
#pragma once

#include <string_view>

#include "runtime/config/select_config.h"
#include "runtime/store/key.h"

namespace tarn::reuse {

// Keys without a say: names of settings, how codes lie in memory and slots on the disk, and when an
// answer is computed anew.
inline constexpr std::string_view kNoSayInSelection[] = {
    "select.preset",        "select.code_format", "select.disk_reorder",
    "select.exact_answers", "select.verified",
};

// `selection_id` is raised when equal settings choose otherwise than before.
store::Key selection_key(const SelectConfig& config, u64 selection_id, u32 kv_type);

}  // namespace tarn::reuse
