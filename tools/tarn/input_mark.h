// Marks the input that a run with --session answers, so that a killed run's answer is given again
// and not asked for twice. The marks of a store's sessions lie in one small file of its folder.
//
//   file    sessions.asked, 4 KiB: a slot for each session, found by its name's hash. Sessions that
//           share a slot overwrite each other's mark, which costs the repeat alone
//   order   the mark is on the disk before the input is fed. It is cleared by one store to mapped
//           memory, behind which the process ends at once: a kill comes before, or after its end
//   full    without room for the file there is no mark, and a warning says so
#pragma once

#include <optional>
#include <string>

#include "platform/base/types.h"

namespace tarn::tools {

// Marks that an input of this session begins behind its first n_tokens.
void mark_input(const std::string& folder, const std::string& name, u64 n_tokens);
// Returns where the input begins whose run did not end in order; none where all did.
std::optional<u64> marked_input(const std::string& folder, const std::string& name);
void forget_mark(const std::string& folder, const std::string& name);
// Ends main(): the answer is with its reader. A process without a mark returns.
void end_marked_run(int code);

}  // namespace tarn::tools
