#include "runtime/engine/sessions/blends.h"

#include <algorithm>

namespace tarn::engine {

void Blends::close() {
  for (reuse::Blend& blend : all_) blend.close();
  host_chunks_.close();
  all_ = {};
}

reuse::Blend* Blends::of(const Session& s) const {
  const auto at =
      std::ranges::find_if(all_, [&](const reuse::Blend& blend) { return blend.is_of(s.idx); });
  return at != all_.end() ? &*at : nullptr;
}

u32 Blends::n_free() const {
  return static_cast<u32>(std::ranges::count_if(all_, &reuse::Blend::is_free));
}

bool Blends::are_next(const Session& s) const {
  const std::span<const reuse::Chunk> ahead = s.chunks_ahead();
  return !ahead.empty() && s.sequence.n_slots() >= ahead.front().begin && of(s) != nullptr;
}

bool Blends::lacks(const Session& s) const {
  return !s.chunks_ahead().empty() && n_free() == 0 && of(s) == nullptr;
}

bool Blends::begin(const Session& s) {
  if (s.chunks_ahead().empty() || of(s) != nullptr) return true;
  const auto free = std::ranges::find_if(all_, &reuse::Blend::is_free);
  return free != all_.end() && free->begin(s.idx, s.chunks_ahead());
}

void Blends::forget(const Session& s) {
  if (reuse::Blend* const blend = of(s)) blend->end();
}

const kv::Sequence* Blends::read_ahead() const {
  for (const reuse::Blend& blend : all_) {
    if (const kv::Sequence* const next = blend.read_ahead()) return next;
  }
  return nullptr;
}

void Blends::end_unused(std::span<const Session> sessions) {
  for (const Session& s : sessions) {
    if (!s.is_busy() || !s.run.is_admitted || s.chunks_ahead().empty()) forget(s);
  }
}

}  // namespace tarn::engine
