// A folder that only its owner can read, for files that hold what users wrote, and random bytes for
// these files' secrets.
//
// A missing folder is made with mode 0700; its parent must exist. An existing folder must belong to
// this user (or to root, for root), and group and others must have no access. Otherwise it is
// refused, and the error names the remedy. Tarn does not change the mode itself: the folder may be
// shared on purpose. A link is refused too, because its owner could redirect the file.
#pragma once

#include <span>

#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

Result<void> make_private_folder(const char* path);
// Checks an existing folder in the same way; makes nothing.
Result<void> check_private_folder(const char* path);

// Fills from the system's generator; right after boot it waits until the generator is ready.
Result<void> fill_random(std::span<u8> bytes);

}  // namespace tarn
