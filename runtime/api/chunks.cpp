// The C border of prompts with chunks.
#include "runtime/api/border.h"
#include "runtime/api/tarn_chunks.h"
#include "runtime/service/chunk_list.h"
#include "runtime/service/text_desk.h"

using namespace tarn;
using namespace tarn::api;
using engine::Engine;
using engine::SessionIdx;
using service::Ids;
using service::TextDesk;

namespace {

// The caller's parts, which may be another version's: the first one says of what size.
class Parts {
 public:
  Parts(const tarn_part* parts, u32 n) : parts_(parts), n_(n) {}
  u32 n() const { return n_; }
  Refusal read(u32 i, tarn_part* part) const {
    const auto* row = reinterpret_cast<const char*>(parts_) + u64{i} * parts_->struct_size;
    return copy_in(reinterpret_cast<const tarn_part*>(row), part);
  }
  // Why they are refused, or nothing.
  Refusal why_not() const {
    if (n_ == 0) return {};
    if (parts_ == nullptr) return {"parts", "parts is NULL and n_parts is not 0"};
    for (u32 i = 0; i < n_; ++i) {
      tarn_part part;
      if (const Refusal why_not = read(i, &part)) return why_not;
      if (part.text == nullptr && part.text_bytes > 0) return {"parts", "a part's text is NULL"};
      if (part.text == nullptr && part.ids == nullptr && part.n_ids > 0)
        return {"parts", "a part has neither a text nor ids"};
      const bool is_empty = part.text != nullptr ? part.text_bytes == 0 : part.n_ids == 0;
      if (part.is_chunk != 0 && is_empty)
        return {"parts", "a chunk is empty: leave it out, or give it a text or ids"};
    }
    return {};
  }

 private:
  const tarn_part* parts_;
  u32 n_;
};

Result<void> encode(TextDesk& desk, const Parts& parts, u32 flags) {
  u64 n_units = 0;
  for (u32 i = 0; i < parts.n(); ++i) {
    tarn_part part;
    if (const Refusal why_not = parts.read(i, &part)) return fail(why_not.error());
    n_units += TextDesk::n_units(part.text != nullptr ? part.text_bytes : part.n_ids);
  }
  TARN_CHECK(desk.begin_parts(n_units));
  const text::EncodeOptions options = feed_options(flags);
  for (u32 i = 0; i < parts.n(); ++i) {
    tarn_part part;
    static_cast<void>(parts.read(i, &part));  // it was read above
    const bool is_chunk = part.is_chunk != 0;
    if (i == 0 && options.add_bos && is_chunk)
      TARN_CHECK(desk.add_part("", {.add_bos = true}, false));
    const text::EncodeOptions own{.add_bos = options.add_bos && i == 0 && !is_chunk,
                                  .parse_special = options.parse_special && !is_chunk};
    if (part.text != nullptr) {
      TARN_CHECK(desk.add_part({part.text, part.text_bytes}, own, is_chunk));
    } else {
      desk.add_part(std::span(part.ids, part.n_ids), is_chunk);
    }
  }
  return desk.end_parts();
}

int32_t feed_parts(const Way& way, tarn_session* session, const tarn_part* parts, uint32_t n_parts,
                   float recompute, uint32_t flags) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  const Parts all(parts, n_parts);
  if (const Refusal why_not = all.why_not()) return refuse(why_not);
  if ((flags & ~kTextFlags) != 0) return refuse({"flags", kBadFlags});
  if (!is_share(recompute)) return refuse(kBadShare);
  return call.serve_text(
      way, [all, flags](TextDesk& desk) { return encode(desk, all, flags); },
      [recompute](Engine& engine, SessionIdx idx, const Ids& ids) -> Result<void> {
        TARN_TRY(const service::ChunkList chunks, service::chunks_of(engine, ids, recompute));
        return engine.sessions().feed(idx, ids.ids, chunks.parts());
      });
}

}  // namespace

extern "C" {

int32_t tarn_session_feed_parts(tarn_session* session, const tarn_part* parts, uint32_t n_parts,
                                float recompute, uint32_t flags) {
  return feed_parts(kWaits, session, parts, n_parts, recompute, flags);
}
int32_t tarn_submit_feed_parts(tarn_session* session, const tarn_part* parts, uint32_t n_parts,
                               float recompute, uint32_t flags, void* request) {
  return feed_parts(later(request), session, parts, n_parts, recompute, flags);
}

}  // extern "C"
