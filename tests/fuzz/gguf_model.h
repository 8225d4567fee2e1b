// Shared by both GGUF targets: everything that the product does with a file before a token is
// computed, and the promises of a file that was taken.
#pragma once

#include <span>

#include "platform/base/types.h"

namespace tarn::test {

void use_gguf_file(std::span<const std::byte> bytes);

}  // namespace tarn::test
