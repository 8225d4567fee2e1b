#include "runtime/text/unicode.h"

#include <array>
#include <iterator>

#include "platform/base/assert.h"
#include "runtime/text/unicode_ranges.h"

namespace tarn::text {
namespace {

constexpr u32 kCodePoints = 0x110000;
constexpr u32 kPageShift = 6;
constexpr u32 kPages = kCodePoints >> kPageShift;

// First code point << 3 | class of each run; the last entry only ends its predecessor.
constexpr auto kRuns = [] {
  std::array<u32, std::size(kClassRuns) + 1> runs{};
  u32 start = 0;
  for (u64 run = 0; run < std::size(kClassRuns); ++run) {
    runs[run] = start << 3 | (kClassRuns[run] & 7);
    start += kClassRuns[run] >> 3;
  }
  runs.back() = start << 3;
  return runs;
}();
static_assert(kRuns.back() >> 3 == kCodePoints);

constexpr u32 run_start(u32 run) { return kRuns[run] >> 3; }

// The run with the first code point of each page of 64: a look-up starts there and walks the few
// runs of one page. 34 KiB, made at compile time.
constexpr auto kPageRuns = [] {
  std::array<u16, kPages> pages{};
  u32 run = 0;
  for (u32 page = 0; page < kPages; ++page) {
    while (run_start(run + 1) <= page << kPageShift) ++run;
    pages[page] = static_cast<u16>(run);
  }
  return pages;
}();

// Most text is ASCII, whose classes change often.
constexpr auto kAsciiClasses = [] {
  std::array<CharClass, 128> classes{};
  u32 run = 0;
  for (u32 point = 0; point < classes.size(); ++point) {
    while (run_start(run + 1) <= point) ++run;
    classes[point] = static_cast<CharClass>(kRuns[run] & 7);
  }
  return classes;
}();

bool continues(std::string_view text, u64 at) {
  return at < text.size() && (static_cast<u8>(text[at]) & 0xC0) == 0x80;
}

u32 low_bits(char byte, u32 mask) { return static_cast<u8>(byte) & mask; }

}  // namespace

CharClass class_of(u32 code_point) {
  TARN_DEBUG_ASSERT(code_point < kCodePoints);
  if (code_point < kAsciiClasses.size()) return kAsciiClasses[code_point];
  u32 run = kPageRuns[code_point >> kPageShift];
  while (run_start(run + 1) <= code_point) ++run;
  return static_cast<CharClass>(kRuns[run] & 7);
}

CodePoint decode_lenient(std::string_view text, u64 at) {
  const u8 lead = static_cast<u8>(text[at]);
  if (lead < 0x80) return {lead, 1};
  const u32 n_bytes = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 1;
  if (n_bytes == 1) return {kReplacement, 1};
  u32 value = low_bits(text[at], 0xFFu >> (n_bytes + 1));
  for (u32 i = 1; i < n_bytes; ++i) {
    if (!continues(text, at + i)) return {kReplacement, 1};
    value = value << 6 | low_bits(text[at + i], 0x3F);
  }
  if (value >= kCodePoints) return {kReplacement, 1};
  return {value, n_bytes};
}

bool is_utf8(std::string_view text) {
  for (u64 at = 0; at < text.size();) {
    const CodePoint point = decode_lenient(text, at);
    const bool surrogate = point.value >= 0xD800 && point.value < 0xE000;
    // A character is well formed if encoding it again gives the same bytes.
    char again[4];
    const u32 n_bytes = encode_utf8(point.value, again);
    if (surrogate || text.substr(at, point.n_bytes) != std::string_view(again, n_bytes)) {
      return false;
    }
    at += point.n_bytes;
  }
  return true;
}

u32 encode_utf8(u32 code_point, char* out) {
  TARN_DEBUG_ASSERT(code_point < kCodePoints);
  if (code_point < 0x80) {
    out[0] = static_cast<char>(code_point);
    return 1;
  }
  const u32 n_bytes = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  for (u32 i = n_bytes - 1; i > 0; --i) {
    out[i] = static_cast<char>(0x80 | (code_point & 0x3F));
    code_point >>= 6;
  }
  constexpr u8 kLead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
  out[0] = static_cast<char>(kLead[n_bytes] | code_point);
  return n_bytes;
}

}  // namespace tarn::text
