// A prompt with chunks (CacheBlend, arXiv:2405.16444): the rows that its session gives to steps
// until all KV up to its last chunk's end is there.
//
//   load    A chunk's pages are taken where they are, or computed alone in a sequence of their own.
//   check   All tokens go through the layers in front of the check layer, in a sequence of these
//           layers. There the V of a chunk's tokens is compared with the chunk's own.
//   choose  Over all chunks at once (row_choice.h).
//   rows    Chunk by chunk KV is transplanted (transplant.h), and the chosen tokens are computed,
//           as rows of a prefill whose other slots are there already. A row sees all before it.
//
// Layer 0 depends on token and position alone, so the check layer's V is exact. With a share of 0
// or 1 nothing is checked. A share of 1 computes every row, with the bits of a prefill.
//
//   determinism     What is chosen follows from tokens, chunks and model alone, never from where a
//                   chunk's KV was.
//   room            a blend has the groups of its longest chunk and those of the check
//   errors          the disk's. A chunk that cannot be read back is computed
//   memory          lent; thread  the engine's, with its workers
#pragma once

#include <optional>

#include "runtime/kv/kv_cache.h"
#include "runtime/kv/parts/chunk_home.h"
#include "runtime/model/model_spec.h"
#include "runtime/reuse/blend/host_chunks.h"
#include "runtime/reuse/blend/row_choice.h"

namespace tarn::lab {
class Probe;
}

namespace tarn::reuse {

// Raised when another choice or placement gives other tokens: records of `tarn verify --reuse` with
// another number are not used.
inline constexpr u32 kBlendId = 1;

struct BlendSizes {
  const model::ModelSpec* spec = nullptr;
  u32 context_tokens = 0, page_tokens = 0, rows_max = 0, n_workers = 0;
  // Returns the first layer whose KV tells tokens apart, and the cache layers in front of it. All
  // layers: there is none.
  u32 check_layer() const;
  u32 n_check_cache_layers() const;
};

// Memory of n blends, which take turns with what one call works in.
struct BlendMemory {
  std::span<f32> deviation;               // [n, context_tokens], and the choice (row_choice.h)
  std::span<kv::GroupRef> source, check;  // [n, Sequence::n_entries()]
  std::span<u32> slots;                   // [rows_max]
  HostChunksMemory host;
  static BlendMemory carve(Carver& carver, const BlendSizes& sizes, u32 n);
  // Returns the i-th blend's part of that of n.
  BlendMemory part(u32 n, u32 i) const;
};

// The session whose prompt it is.
struct BlendTarget {
  u32 session = 0;
  kv::Sequence* sequence = nullptr;
  store::Key root{};
  std::span<u32>
      ids{};  // the one in front of a chunk stands for BOS while the chunk's KV is asked for
};

class Blend {
 public:
  struct Args {
    BlendSizes sizes{};
    kv::KvCache* kv = nullptr;
    kv::ChunkHome* chunks = nullptr;  // where their KV lies
    std::optional<u32> bos{};         // that a prompt begins with
    BlendMemory memory{};
    ScoreRows score = nullptr;  // lab::Probe's
  };
  void init(const Args& args);
  void close() { args_ = {}; }

  // Returns the tokens of this part whose KV can be transplanted, of n_ids tokens that begin with
  // first_id. Nothing where it is too short, or stands where it would be computed.
  std::optional<Chunk> chunk_of(const ChunkSpan& part, u32 first_id, u32 n_ids) const;

  bool is_free() const { return session_ == kNobody; }
  bool is_of(u32 session) const { return session_ == session; }
  // KV of the session ends where the first of these chunks begins, or before. False: there are not
  // as many free groups as the blend holds.
  bool begin(u32 session, std::span<const Chunk> chunks);
  void end();
  void forget(u32 session) {
    if (is_of(session)) end();
  }

  // Takes what is there of what the next rows need. False: the blend has ended, since all is done
  // or no group is free for the next chunk.
  bool prepare(const BlendTarget& target);
  // Returns the part that the next rows belong to.
  step::RunPart next_part() const {
    if (source_.n_slots() < n_source()) return step::RunPart::chunk;
    return checks_ ? step::RunPart::check : step::RunPart::own;
  }
  // Rows that it could give now, counted by what they cost: many of a check are one.
  u32 n_ready(const BlendTarget& target) const;
  struct Rows {
    step::RunPart part{};
    kv::Sequence* sequence = nullptr;
    std::span<const u32> ids{};  // of the slots that come next
    std::span<const u32>
        slots{};  // of RunPart::own: where the rows are; none: KV was transplanted alone
    std::optional<u32> first_id{};  // in place of the first of ids
    u32 check_layer = 0;            // of RunPart::check
  };
  // Gives the next n of n_ready() rows, rows_max at most, with KV transplanted around them.
  Result<Rows> take(const BlendTarget& target, u32 n, u32 rows_max);
  // Returns what is read from the disk while the step computes: the chunk behind the one under way.
  const kv::Sequence* read_ahead() const {
    return !is_free() && loaded_ > at_ && loaded_ < n_chunks_ ? &source_ : nullptr;
  }
  // Commits what take() gave, which has been computed; of a check run V at the check layer.
  Result<void> commit(const BlendTarget& target, const step::Run& run, step::Rows v);
  // KV of the chunk could not be read. False: nothing more is to be tried.
  bool lose_chunk();

  // Counts, of the prompt under way, tokens whose KV was transplanted, and those that are computed
  // anew.
  u32 n_placed() const { return n_tokens_ - n_chosen_; }
  u32 n_recomputed() const { return n_chosen_; }
  // Returns whether a token of the last prompt, from its first chunk to its last one, was computed.
  bool is_chosen(u32 token) const { return reuse::is_chosen(args_.memory.deviation[token]); }

 private:
  friend class lab::Probe;

  static constexpr u32 kNobody = ~u32{0};
  const Chunk& chunk() const { return chunks_[at_]; }
  u32 n_bos() const { return args_.bos ? 1 : 0; }
  u32 n_source() const { return n_bos() + chunk().n_tokens(); }
  bool reserve();
  u32 source_slot(u32 token) const { return token - chunk().begin + n_bos(); }
  void load(const BlendTarget& target, u32 idx);
  // fn(BOS and the chunk's ids): BOS stands in place of the token in front of the chunk meanwhile.
  template <class Fn>
  void with_source_ids(const BlendTarget& target, const Chunk& chunk, Fn&& fn) const {
    const std::span<u32> ids =
        target.ids.subspan(chunk.begin - n_bos(), n_bos() + chunk.n_tokens());
    const u32 before = ids[0];
    if (args_.bos) ids[0] = *args_.bos;
    fn(std::span<const u32>(ids));
    ids[0] = before;
  }
  void choose();
  Result<void> transplant(const BlendTarget& target, u32 from, u32 to);
  Result<void> compare(u32 first_token, u32 n, step::Rows v);

  Args args_{};
  kv::Sequence source_{}, check_{};
  u32 session_ = kNobody;
  std::array<Chunk, Chunks::kMax> chunks_{};
  u32 n_chunks_ = 0;
  u32 at_ = 0;      // the chunk under way
  u32 loaded_ = 0;  // the chunk whose KV source_ has, in part at least: at_, or the next one
  bool checks_ = false;
  u32 n_tokens_ = 0, n_chosen_ = 0;
  u32 n_lost_ = 0;
};

}  // namespace tarn::reuse
