// llama-bench's lists of numbers: "512", "1,2,4", "1-4" (step 1), "16-64+16", "1-8*2", and any of
// them with commas between.
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"

namespace tarn::bench {

// Throws std::invalid_argument with the invalid part. Ranges are inclusive and ascending; at most
// 1000 values.
std::vector<u32> parse_values(const std::string& text);

// "512,128" -> {512, 128}. Throws std::invalid_argument.
std::pair<u32, u32> parse_pair(const std::string& text);

}  // namespace tarn::bench
