// Cuts a text into passages that can be chunks of a prompt (runtime/api/tarn_chunks.h). Programs
// that keep passages and programs that ask about them cut by this, so they have the same tokens.
//
//   border   behind the last line break with which a passage has n_max tokens at most. A longer
//            line is cut behind a space, and one without any in front of a character
//   tokens   those that each passage has by itself, without BOS
//   sum      the passages' texts behind each other are the text
#pragma once

#include <string>
#include <vector>

#include "tools/support/model_file.h"

namespace tarn::tools {

struct Passage {
  std::string text{};
  std::vector<u32> ids{};
};

inline constexpr u32 kPassageTokens = 1024;  // at most, without another number
inline constexpr u32 kPassageTokensMin = 16, kPassageTokensMax = 1u << 20;
inline constexpr const char* kChunkTokensHelp =
    "a longer file is cut into chunks of so many tokens at most, at line breaks; the same where "
    "chunks are kept and where they are asked for";

// Throws Failure as ModelFile::encode() does. n_max >= kPassageTokensMin, so that a character
// fits.
std::vector<Passage> cut_into_passages(ModelFile& model, const std::string& text, u32 n_max);

}  // namespace tarn::tools
