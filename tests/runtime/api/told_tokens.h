// What a host can know of a session's tokens, from the replies and events of one that it does not
// wait for: what certainly stands there, and behind it pieces that a cancel or a deadline may have
// cut. A list of all tokens, asked for while the session rests, settles which.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/types.h"
#include "runtime/api/tarn.h"

namespace tarn::test {

// One generation: what was asked for, and what came.
struct Heard {
  Heard() = default;
  Heard(const Heard&) = delete;
  Heard& operator=(const Heard&) = delete;
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  std::string stop;  // what they point to
  const char* stops[1] = {};
  tarn_logit_bias bias{};
  u64 asked_ns = 0;           // before the call
  bool is_cancelled = false;  // the host did, after the call
  std::vector<u32> base;      // the session's tokens before it, once they are known
  std::vector<u32> tokens;
  std::vector<float> logprobs;
  std::string text;
  tarn_event done = TARN_INIT(tarn_event);

  // The next event of it.
  void take(const tarn_event& event) {
    if (event.type == TARN_EVENT_TEXT) text.append(event.text, event.text_bytes);
    if (event.type == TARN_EVENT_DONE) done = event;
    if (event.type != TARN_EVENT_TOKEN) return;
    tokens.push_back(event.token);
    logprobs.push_back(event.logprob);
  }
};
using HeardRef = std::shared_ptr<Heard>;

class ToldTokens {
 public:
  explicit ToldTokens(u32 context_tokens) : context_tokens_(context_tokens) {}

  // A feed was answered. One that was cancelled before may be cut.
  void feed(const std::vector<u32>& ids, bool may_be_cut) {
    if (!ids.empty()) pieces_.push_back({ids, may_be_cut, nullptr});
    flatten();
  }
  // A generation was begun. Its tokens follow.
  void begin_answer(const HeardRef& answer) {
    pieces_.push_back({{}, false, answer});
    is_open_ = true;
  }
  // All of its tokens were told. False: a list of the tokens was wrong meanwhile.
  bool end_answer() {
    // One that ended before its first token took tokens back that were fed for it.
    if (last_answer()->tokens.empty()) may_cut();
    const bool is_right =
        std::ranges::all_of(moments_, [&](const Moment& m) { return matches(m.ids, m.n_pieces); });
    moments_.clear();
    is_open_ = false;
    flatten();
    return is_right;
  }
  HeardRef last_answer() const {
    for (u64 i = pieces_.size(); i > 0; --i) {
      if (pieces_[i - 1].answer) return pieces_[i - 1].answer;
    }
    return nullptr;
  }
  // The session drops what it has not computed.
  void may_cut() {
    if (n_safe_ < ids_.size()) {
      pieces_.insert(pieces_.begin(),
                     Piece{.ids = {from(ids_, n_safe_), ids_.cend()}, .may_be_cut = true});
      ids_.resize(n_safe_);
      for (Moment& moment : moments_) ++moment.n_pieces;
    }
    for (Piece& piece : pieces_) piece.may_be_cut = !piece.answer;
  }
  // Of one that was certain when this was asked for.
  void truncate(u64 n_tokens) {
    rejoin();
    ids_.resize(n_tokens);
    n_safe_ = n_tokens;
  }
  void replace(const std::vector<u32>& ids) {
    rejoin();
    n_safe_ = std::min(n_safe_, n_common(ids_, ids));
    ids_ = ids;
  }
  // All tokens, as they were at this moment. False: they cannot be these.
  bool look(const std::vector<u32>& all) {
    if (!is_open_) return matches(all, pieces_.size());
    moments_.push_back({all, pieces_.size()});  // the rest of the answer will tell
    return true;
  }
  // The same while nothing is computed, and nothing was asked for that might.
  bool settle(const std::vector<u32>& all) {
    if (!matches(all, pieces_.size())) return false;
    learn(all);
    return true;
  }
  // These are the tokens, of a session of which nothing was known.
  void learn(const std::vector<u32>& all) {
    for (const Piece& piece : pieces_) note_known(piece);
    ids_ = all;
    n_safe_ = all.size();
    pieces_.clear();
  }
  // Answers whose base is known by now.
  std::vector<HeardRef> take_known() { return std::exchange(known_, {}); }

  bool is_open() const { return is_open_; }  // an answer
  bool is_certain() const { return pieces_.empty(); }
  const std::vector<u32>& ids() const { return ids_; }  // of one that is certain
  u64 n_pieces() const { return pieces_.size(); }
  u64 n_min() const { return ids_.size(); }
  u64 n_max() const {
    u64 n = ids_.size();
    for (const Piece& piece : pieces_) n += piece.ids_of().size();
    return n;
  }

 private:
  static std::vector<u32>::const_iterator from(const std::vector<u32>& ids, u64 at) {
    return ids.begin() + static_cast<std::ptrdiff_t>(at);
  }
  static u64 n_common(const std::vector<u32>& a, const std::vector<u32>& b) {
    return static_cast<u64>(std::ranges::mismatch(a, b).in1 - a.begin());
  }
  struct Piece {
    std::vector<u32> ids{};
    bool may_be_cut = false;
    HeardRef answer{};
    const std::vector<u32>& ids_of() const { return answer ? answer->tokens : ids; }
  };

  struct Moment {
    std::vector<u32> ids;
    u64 n_pieces = 0;
  };

  // The last token of an answer that fills the context is told, and is not the session's.
  u64 n_kept(const Piece& piece, u64 at) const {
    const u64 n = piece.ids_of().size();
    return piece.answer ? std::min<u64>(n, context_tokens_ - std::min<u64>(at, context_tokens_))
                        : n;
  }
  // Whether the first pieces can have left these tokens. Notes what came before each answer.
  bool matches(const std::vector<u32>& all, u64 n_pieces) {
    return n_common(all, ids_) == ids_.size() && matches(all, ids_.size(), 0, n_pieces);
  }
  bool matches(const std::vector<u32>& all, u64 at, u64 piece_idx, u64 n_pieces) {
    if (piece_idx == n_pieces) return at == all.size();
    const Piece& piece = pieces_[piece_idx];
    const std::vector<u32>& ids = piece.ids_of();
    const u64 n = n_kept(piece, at);
    u64 n_same = 0;
    while (n_same < n && at + n_same < all.size() && all[at + n_same] == ids[n_same]) ++n_same;
    const bool is_part = piece.may_be_cut || (is_open_ && piece.answer == last_answer());
    for (u64 i = n_same + 1; i > (is_part ? 0 : n); --i) {
      if (!matches(all, at + i - 1, piece_idx + 1, n_pieces)) continue;
      if (piece.answer) piece.answer->base.assign(all.begin(), from(all, at));
      return true;
    }
    return false;
  }
  void note_known(const Piece& piece) {
    if (piece.answer) known_.push_back(piece.answer);
  }
  // A cancel has taken certain ones apart.
  void rejoin() {
    for (const Piece& piece : pieces_) ids_.insert(ids_.end(), piece.ids.begin(), piece.ids.end());
    pieces_.clear();
  }
  // Pieces that nothing has cut become certain.
  void flatten() {
    const bool is_certain =
        !is_open_ && std::ranges::none_of(pieces_, [](const Piece& p) { return p.may_be_cut; });
    if (!is_certain) return;
    for (const Piece& piece : pieces_) {
      if (piece.answer) piece.answer->base = ids_;
      note_known(piece);
      const u64 n = n_kept(piece, ids_.size());
      const std::vector<u32>& ids = piece.ids_of();
      ids_.insert(ids_.end(), ids.begin(), from(ids, n));
      if (piece.answer) n_safe_ = ids_.size();  // it was computed for its first token
    }
    pieces_.clear();
  }

  u64 context_tokens_;
  std::vector<u32> ids_;
  u64 n_safe_ = 0;  // of them, that no cancel takes back
  std::vector<Piece> pieces_;
  std::vector<Moment> moments_;  // while an answer is open
  std::vector<HeardRef> known_;
  bool is_open_ = false;
};

}  // namespace tarn::test
