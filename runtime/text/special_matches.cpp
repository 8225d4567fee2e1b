#include "runtime/text/encode.h"

#include <algorithm>

namespace tarn::text {
namespace {

class Finder {
 public:
  Finder(const Tokenizer::Tables& tables, std::string_view text, const EncodeOptions& options)
      : tables_(tables),
        text_(text),
        options_(options),
        starts_(options.parse_special ? tables.special_starts : tables.user_defined_starts) {}

  bool may_start(u64 at) const { return starts_[static_cast<u8>(text_[at])]; }
  std::string_view text_of(TokenId id) const { return tables_.texts.at(id); }

  // The longest token at `at` of at most `bytes_max`; kNoToken if there is none. Narrows the sorted
  // list byte by byte to the tokens that still match.
  TokenId longest(u64 at, u64 bytes_max) const {
    const std::string_view rest = text_.substr(at, bytes_max);
    const u32* low = tables_.specials.data();
    const u32* high = low + tables_.specials.size();
    TokenId found = kNoToken;
    for (u64 n_agree = 0; low != high; ++n_agree) {
      if (high - low == 1) {  // one comparison remains
        return rest.starts_with(text_of(*low)) && wanted(*low, at) ? *low : found;
      }
      if (text_of(*low).size() == n_agree) {
        if (wanted(*low, at)) found = *low;
        ++low;  // only one ends here: all texts differ
      }
      if (n_agree == rest.size()) break;
      const u8 byte = static_cast<u8>(rest[n_agree]);
      const auto at_byte = [&](u32 id) { return static_cast<u8>(text_of(id)[n_agree]); };
      low = std::partition_point(low, high, [&](u32 id) { return at_byte(id) < byte; });
      high = std::partition_point(low, high, [&](u32 id) { return at_byte(id) == byte; });
    }
    return found;
  }

  // Whether `a` is taken before `b`.
  bool before(const SpecialMatch& a, const SpecialMatch& b) const {
    const u64 a_bytes = text_of(a.id).size();
    const u64 b_bytes = text_of(b.id).size();
    if (a_bytes != b_bytes) return a_bytes > b_bytes;
    return a.id != b.id ? a.id < b.id : a.at < b.at;
  }

 private:
  // Whether the token, whose text is at `at`, is taken there.
  bool wanted(TokenId id, u64 at) const {
    const bool is_user_defined = tables_.kind_of(id) == TokenKind::user_defined;
    if (!is_user_defined && !options_.parse_special) return false;
    if (options_.origins.empty() || (is_user_defined && !tables_.is_marker(id))) return true;
    const auto origins = options_.origins.subspan(at, text_of(id).size());
    return std::all_of(origins.begin(), origins.end(), [](u8 origin) { return origin == 0; });
  }

  const Tokenizer::Tables& tables_;
  std::string_view text_;
  const EncodeOptions& options_;
  const std::array<bool, 256>& starts_;
};

// The matches of the text before `end`, decided by that text and no other.
struct Decided {
  u64 n_places = 0;
  u64 end = 0;
};

// Lists the longest match at each place of [begin, end), and cuts it where the rest of the text has
// no say. A match that is taken before each one that overlaps it is certain. So a chain of matches
// that overlap is decided once a place after its best one is reached.
Decided find_places(const Finder& finder, u64 begin, u64 end, std::span<SpecialMatch> places) {
  Decided decided{.n_places = 0, .end = begin};
  SpecialMatch best;  // of the chain
  u64 best_end = begin;
  u64 n = 0;
  for (u64 at = begin; at < end; ++at) {
    if (!finder.may_start(at)) continue;
    const SpecialMatch match{.at = static_cast<u32>(at), .id = finder.longest(at, ~u64{0})};
    if (match.id == kNoToken) continue;
    const bool begins_chain = at >= best_end;
    if (begins_chain) decided = {.n_places = n, .end = at};
    if (begins_chain || finder.before(match, best)) {
      best = match;
      best_end = at + finder.text_of(best.id).size();
    }
    places[n++] = match;
  }
  if (best_end <= end) decided = {.n_places = n, .end = end};
  // A match over the end begins inside the best match of its chain, so it is never taken.
  const auto is_over = [&](const SpecialMatch& match) {
    return match.at + finder.text_of(match.id).size() > decided.end;
  };
  const auto listed = places.first(decided.n_places);
  const auto kept = std::remove_if(listed.begin(), listed.end(), is_over);
  decided.n_places = static_cast<u64>(kept - listed.begin());
  return decided;
}

// Chooses the taken matches from the longest match at each place. `matches` holds a heap of
// candidates from the front and the taken matches from the back; `taken` begins at `begin`.
std::span<SpecialMatch> take_best(const Finder& finder, u64 begin, std::span<SpecialMatch> matches,
                                  std::span<u8> taken) {
  const auto later = [&](const SpecialMatch& a, const SpecialMatch& b) {
    return finder.before(b, a);
  };
  SpecialMatch* const heap = matches.data();
  u64 n_heap = matches.size();
  u64 first_taken = matches.size();
  std::make_heap(heap, heap + n_heap, later);
  while (n_heap > 0) {
    std::pop_heap(heap, heap + n_heap, later);
    SpecialMatch match = heap[--n_heap];
    const u64 n_bytes = finder.text_of(match.id).size();
    const auto first = taken.begin() + static_cast<std::ptrdiff_t>(match.at - begin);
    if (*first != 0) continue;
    // Taken matches are at least as long as this one, so an overlap covers one of its ends.
    if (first[static_cast<std::ptrdiff_t>(n_bytes - 1)] == 0) {
      std::fill_n(first, n_bytes, u8{1});
      heap[--first_taken] = match;
      continue;
    }
    const u64 room = static_cast<u64>(std::find(first, taken.end(), u8{1}) - first);
    match.id = finder.longest(match.at, room);
    if (match.id == kNoToken) continue;
    heap[n_heap++] = match;
    std::push_heap(heap, heap + n_heap, later);
  }
  return matches.subspan(first_taken);
}

Unexpected too_little_scratch(u64 scratch_bytes) {
  return fail({.status = Status::invalid_request,
               .reason = Reason::no_memory,
               .key = "text",
               .hint = "special tokens of the text overlap for longer than the scratch for "
                       "encoding takes: write other text between them, or lend "
                       "encode_scratch_bytes()",
               .figures = {{{"scratch bytes", scratch_bytes}}}});
}

}  // namespace

Result<SpecialMatches> special_matches(const Tokenizer::Tables& tables, std::string_view text,
                                       u64 begin, const EncodeOptions& options, Bump& scratch) {
  const Finder finder(tables, text, options);
  const u64 scratch_bytes = scratch.free_bytes();
  const u64 window_bytes = std::min(text.size() - begin, special_window_bytes(scratch_bytes));
  const u64 end = begin + window_bytes;
  u64 n_starts = 0;
  for (u64 at = begin; at < end; ++at) n_starts += finder.may_start(at) ? u64{1} : u64{0};
  if (n_starts == 0 && end > begin) return SpecialMatches{.end = end};

  const auto places = scratch.alloc<SpecialMatch>(n_starts);
  if (!places) return too_little_scratch(scratch_bytes);
  const Decided decided = find_places(finder, begin, end, *places);
  if (decided.end == begin) return too_little_scratch(scratch_bytes);
  const u64 keep = scratch.used_bytes();
  const auto taken = scratch.alloc<u8>(decided.end - begin);
  if (!taken) return too_little_scratch(scratch_bytes);
  std::fill(taken->begin(), taken->end(), u8{0});
  const auto best = take_best(finder, begin, places->first(decided.n_places), *taken);
  std::sort(best.begin(), best.end(),
            [](const SpecialMatch& a, const SpecialMatch& b) { return a.at < b.at; });
  std::copy(best.begin(), best.end(), places->begin());
  scratch.rewind(keep - (n_starts - best.size()) * sizeof(SpecialMatch));
  return SpecialMatches{.matches = places->first(best.size()), .end = decided.end};
}

}  // namespace tarn::text
