#include "runtime/text/python_chars.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "runtime/text/python_char_ranges.h"
#include "runtime/text/unicode.h"

namespace tarn::text {
namespace {

// The first code points of the printable runs' ends: an odd number of them up to a code point says
// that it is printable.
constexpr auto kPrintableEdges = [] {
  std::array<u32, std::size(kPrintableRuns)> edges{};
  u32 end = 0;
  for (u64 run = 0; run < edges.size(); ++run) edges[run] = end += kPrintableRuns[run];
  return edges;
}();

enum class CaseKind : u8 { other = 0, cased = 1, ignored = 2 };

// First code point << 2 | kind of each run.
constexpr auto kCaseKinds = [] {
  std::array<u32, std::size(kCasedRuns)> runs{};
  u32 start = 0;
  for (u64 run = 0; run < runs.size(); ++run) {
    runs[run] = start << 2 | (kCasedRuns[run] & 3);
    start += kCasedRuns[run] >> 2;
  }
  return runs;
}();

CaseKind case_kind(u32 code_point) {
  const auto after = std::upper_bound(kCaseKinds.begin(), kCaseKinds.end(), code_point << 2 | 3);
  return static_cast<CaseKind>(*std::prev(after) & 3);
}

Cased one(u32 code_point) { return {.n = 1, .code_points = {code_point}}; }

// A code point that no run has is its own case.
Cased cased(std::span<const CaseRun> runs, u32 code_point) {
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), code_point,
                       [](u32 point, const CaseRun& run) { return point < run.first; });
  if (after == runs.begin()) return one(code_point);
  const CaseRun& run = *std::prev(after);
  const u32 offset = code_point - run.first;
  const bool is_in = offset % run.stride == 0 && offset / run.stride < run.count;
  return one(is_in ? code_point + static_cast<u32>(run.delta) : code_point);
}

const SpecialCase* find_special(u32 code_point) {
  const auto* const found = std::lower_bound(
      std::begin(kSpecialUppers), std::end(kSpecialUppers), code_point,
      [](const SpecialCase& special, u32 point) { return special.code_point < point; });
  return found != std::end(kSpecialUppers) && found->code_point == code_point ? found : nullptr;
}

}  // namespace

bool is_python_printable(u32 code_point) {
  const auto edge = std::upper_bound(kPrintableEdges.begin(), kPrintableEdges.end(), code_point);
  return (edge - kPrintableEdges.begin()) % 2 == 1;
}

bool is_python_space(u32 code_point) {
  return class_of(code_point) == CharClass::space || (code_point >= 0x1C && code_point <= 0x1F);
}

bool is_final_sigma(std::string_view text, u64 at) {
  CaseKind kind = CaseKind::ignored;
  for (u64 before = at; before > 0 && kind == CaseKind::ignored;) {
    do --before;
    while (before > 0 && (static_cast<u8>(text[before]) & 0xC0) == 0x80);
    kind = case_kind(decode_lenient(text, before).value);
  }
  if (kind != CaseKind::cased) return false;
  kind = CaseKind::ignored;
  for (u64 after = at + decode_lenient(text, at).n_bytes;
       after < text.size() && kind == CaseKind::ignored;) {
    const CodePoint point = decode_lenient(text, after);
    kind = case_kind(point.value);
    after += point.n_bytes;
  }
  return kind != CaseKind::cased;
}

Cased python_upper(u32 code_point) {
  const SpecialCase* special = find_special(code_point);
  if (special == nullptr) return cased(kUpperRuns, code_point);
  const auto& upper = special->upper;
  return {.n = upper[2] == 0 ? 2u : 3u, .code_points = {upper[0], upper[1], upper[2]}};
}

Cased python_lower(u32 code_point) {
  constexpr u32 kCapitalSigma = 0x3A3, kCapitalDottedI = 0x130, kDotAbove = 0x307;
  if (code_point == kCapitalSigma) return {};
  if (code_point == kCapitalDottedI) return {.n = 2, .code_points = {'i', kDotAbove}};
  return cased(kLowerRuns, code_point);
}

Cased python_title(u32 code_point) {
  const auto is_in = [&](u32 first, u32 last) { return first <= code_point && code_point <= last; };
  const bool is_digraph = is_in(0x1C4, 0x1CC) || is_in(0x1F1, 0x1F3);
  const bool is_georgian = is_in(0x10D0, 0x10FF);
  if (is_digraph || is_georgian || find_special(code_point) != nullptr) return {};
  return python_upper(code_point);
}

}  // namespace tarn::text
