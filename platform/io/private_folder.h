// platform/io/private_folder.h
//
// A folder that nobody but its owner can look into, for files that hold what users wrote, and the
// random bytes that such files' secrets are made of.
//
// A missing folder is made, with mode 0700; its parent must be there. One that is there is taken if
// it is a folder of this user's (or of root's, for root) that group and others may not enter, and
// refused with the command that closes it if they may: as ssh does with keys, since tightening a
// folder that somebody shares on purpose would break what is his, and leaving it open would show
// what is ours. A link in its place is refused too: whoever can change it could send the file
// elsewhere.
#pragma once

#include <span>

#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

Result<void> make_private_folder(const char* path);
// The same for a folder that is there: nothing is made.
Result<void> check_private_folder(const char* path);

// From the system's generator; waits until it is ready, right after the start of a box.
Result<void> fill_random(std::span<u8> bytes);

}  // namespace tarn
