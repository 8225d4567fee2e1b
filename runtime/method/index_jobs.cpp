#include "runtime/method/index_jobs.h"

#include <cstring>
#include <utility>

#include "platform/base/assert.h"

namespace tarn::method {

void IndexJobs::init() {
  spare_ = memory_.spare_set();
  spare_user_ = nullptr;
}

u32 IndexJobs::n_units() const {
  return method_of(*args_.config).training != nullptr ? args_.spec->n_cache_layers : 0;
}

bool IndexJobs::has_units_left(const IndexSession& s) const {
  return s.n_rows > 0 && s.n_units_done < n_units();
}

bool IndexJobs::is_made(const IndexSession& s, u32 n_rows) const {
  return !s.is_restoring && s.n_rows == n_rows && s.n_units_done == n_units();
}

bool IndexJobs::overwrites(const IndexSession& s) const {
  return !s.life.is_dense() && !s.is_restoring && s.target == s.heads;
}

void IndexJobs::start_job(IndexSession& s, u32 n_rows) {
  s.n_rows = n_rows;
  s.target = nullptr;
  s.n_units_done = s.n_units_due = s.waits_at = 0;
  s.is_stuck = false;
  saved_.erase(s, std::exchange(s.job_key, saved_.draw_key()));
  if (!s.life.is_dense()) return;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) s.heads[head]->forget();
}

void IndexJobs::drop_job(IndexSession& s) {
  s.is_stuck = s.is_restoring = false;
  s.n_rows = 0;
  s.target = nullptr;
  s.n_units_done = s.n_units_found = s.n_units_due = s.waits_at = 0;
  saved_.erase(s, std::exchange(s.job_key, {}));
  if (spare_user_ == &s) spare_user_ = nullptr;
}

// Begins to make the index in use again, of which nothing is there.
void IndexJobs::begin_restoring(IndexSession& s) {
  drop_job(s);
  s.is_restoring = true;
  s.n_units_found = memory_.extents() == nullptr ? n_units() : 0;
  s.n_rows = s.life.n_rows_used();
  if (s.used_key == store::Key{}) s.used_key = saved_.draw_key();
  begin_filling(s, s.heads);
}

void IndexJobs::await_clustering(IndexSession& s) {
  if (s.life.is_clustering()) start_job(s, s.life.n_rows_clustering());
}

void IndexJobs::take_over(IndexSession& s) {
  if (s.target == spare_ && spare_user_ == &s) std::swap(s.heads, spare_);
}

// Returns the set that the session's job may fill. One that a session filled in the spare set and
// left, since it does not step any more, is not used before it steps again, which may be never;
// made anew it is the same.
Reader** IndexJobs::free_set(const IndexSession& s, bool is_due) const {
  if (s.life.is_dense()) return s.heads;
  if (spare_user_ == nullptr || spare_user_ == &s) return spare_;
  // A session of this step takes it from one that has stopped. Of two that have stopped neither
  // does, or they would take it from each other for ever.
  const bool has_stopped = step_idx_ - spare_user_->step_idx >= 2;
  if (has_stopped && s.step_idx == step_idx_) return spare_;
  return is_due ? s.heads : nullptr;
}

bool IndexJobs::can_work(const IndexSession& s, bool is_due) const {
  if (!has_units_left(s) || s.is_stuck) return false;
  return s.target != nullptr || free_set(s, is_due) != nullptr;
}

// Returns as many units a step as bring a job to its end before its index is used; beside a prompt
// only what is more than the steps that are left could do, each its share of the whole job.
u32 IndexJobs::units_of_step(const IndexSession& s, u32 n_tokens, bool beside_prompt) const {
  const u32 n_left = n_units() - s.n_units_done;
  const u32 n_steps = std::max(s.life.active_at() - std::min(s.life.active_at(), n_tokens), 1u);
  const u64 n_even = ceil_div(n_left, n_steps);
  const u64 n_later = ceil_div(n_units(), args_.config->index_delay_tokens) * (n_steps - 1);
  const u64 n_late = n_left - std::min<u64>(n_left, n_later);
  return static_cast<u32>(beside_prompt ? std::min(n_even, n_late) : n_even);
}

Result<void> IndexJobs::run_units(IndexSession& s, u32 n, bool is_due) {
  if (!has_units_left(s)) return {};
  if (s.target == nullptr) {
    Reader** const target = free_set(s, is_due);
    TARN_ASSERT(target != nullptr);
    if (target == spare_) {
      if (spare_user_ != nullptr && spare_user_ != &s) start_job(*spare_user_, spare_user_->n_rows);
      spare_user_ = &s;
    }
    begin_filling(s, target);
  }
  args_.kv->plan_step({});
  for (; n > 0 && s.n_units_done < n_units(); --n) {
    if (s.is_restoring && s.n_units_found < n_units()) {
      saved_.find_layer(s, s.n_units_found++);
    } else {
      TARN_CHECK(make_layer(s, s.n_units_done));
      ++s.n_units_done;
      ++n_units_spent_;
    }
    pass_found_layers(s);
  }
  if (s.is_restoring && s.n_units_done == n_units()) {
    drop_job(s);
    await_clustering(s);
  }
  return {};
}

void IndexJobs::begin_filling(IndexSession& s, Reader** target) {
  s.target = target;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    target[head]->forget();
  }
}

// Passes layers of an index that is made again, where they are there as a whole. All have been
// looked for before the first one is made: what is written then takes nothing of what was found.
void IndexJobs::pass_found_layers(IndexSession& s) const {
  if (!s.is_restoring || s.n_units_found < n_units()) return;
  while (s.n_units_done < n_units() && saved_.has_layer(s, s.n_units_done) &&
         memory_.order().has_extents(s, s.n_units_done)) {
    ++s.n_units_done;
  }
}

// Makes a layer that is not there. Where the disk fails, all of the index is made again.
Result<void> IndexJobs::make_layer(IndexSession& s, u32 cache_layer) {
  const bool is_there = s.is_restoring && saved_.has_layer(s, cache_layer);
  if (!is_there) TARN_CHECK(train_layer(s, cache_layer));
  TARN_CHECK(memory_.order().lay_out(s, cache_layer));
  saved_.keep_layer(s, cache_layer);
  return {};
}

Result<void> IndexJobs::train_layer(IndexSession& s, u32 cache_layer) {
  const u32 n_kv_heads = args_.spec->n_kv_heads, n_parts = args_.shape->n_train_parts;
  const u32 first_head = cache_layer * n_kv_heads;
  Reader** const heads = s.target + first_head;
  const u32 slot_begin = s.life.ranges().middle_begin, slot_end = slot_begin + s.n_rows;
  for (u32 i = 0; i < n_kv_heads; ++i) heads[i]->begin_training(slot_begin, s.n_rows);
  // A task of each part of each head, with keys(kv_head, scratch).
  const auto train = [&](TrainUnit::Keys what, u32 begin, u32 end, auto&& keys) {
    args_.workers->run(n_kv_heads * n_parts, [&](u32 task_idx, u32 worker_idx) {
      if (worker_idx == 0) memory_.tick();  // in memory all keys of a layer are one window
      const WorkerScratch mine = memory_.scratch(worker_idx);
      const u32 kv_head = task_idx / n_parts;
      heads[kv_head]->train({.what = what,
                             .table = *args_.table,
                             .keys = keys(kv_head, mine),
                             .begin = begin,
                             .end = end,
                             .part = task_idx % n_parts,
                             .scratch = mine.train});
    });
  };
  if (const u32 n_sample = std::min(args_.shape->n_sample, s.n_rows); n_sample > 0) {
    TARN_CHECK(take_sample(s, cache_layer, n_sample));
    train(TrainUnit::Keys::sample, 0, n_sample, [&](u32 kv_head, const WorkerScratch& mine) {
      mine.pages[0] = reinterpret_cast<const u8*>(memory_.sample_of(kv_head));
      return KeyPages{.type = args_.shape->in.kv_type,
                      .pages = mine.pages,
                      .page_tokens = n_sample,
                      .head_dim = args_.spec->head_dim,
                      .stride_bytes = args_.shape->in.group.vector_bytes};
    });
  }
  TARN_CHECK(
      memory_.each_window(*s.sequence, cache_layer, slot_begin, slot_end, [&](const KeyWindow& w) {
        train(TrainUnit::Keys::rows, w.slot_begin, w.slot_end,
              [&](u32 kv_head, const WorkerScratch& mine) {
                return memory_.key_pages(*s.sequence, first_head + kv_head, w, mine.pages);
              });
      }));
  args_.workers->run(n_kv_heads, [&](u32 kv_head, u32) { heads[kv_head]->end_training(); });
  return {};
}

// Copies n_sample keys of each head of a layer, one behind the other.
Result<void> IndexJobs::take_sample(IndexSession& s, u32 cache_layer, u32 n_sample) {
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  const u64 vector_bytes = args_.shape->in.group.vector_bytes;
  const u32 page_tokens = args_.shape->in.group.page_tokens;
  const u32 slot_begin = s.life.ranges().middle_begin;
  return memory_.each_window(
      *s.sequence, cache_layer, slot_begin, slot_begin + s.n_rows, [&](const KeyWindow& w) {
        args_.workers->run(n_kv_heads, [&](u32 kv_head, u32 worker_idx) {
          const u8** pages = memory_.scratch(worker_idx).pages;
          memory_.key_pages(*s.sequence, cache_layer * n_kv_heads + kv_head, w, pages);
          u8* out = reinterpret_cast<u8*>(memory_.sample_of(kv_head));
          u64 i = ceil_div(u64{w.slot_begin - slot_begin} * n_sample, s.n_rows);
          for (; i < n_sample; ++i) {
            const u32 slot = slot_begin + sample_row(static_cast<u32>(i), n_sample, s.n_rows);
            if (slot >= w.slot_end) break;
            const u8* key = pages[slot / page_tokens] + u64{slot % page_tokens} * 2 * vector_bytes;
            std::memcpy(out + i * vector_bytes, key, vector_bytes);
          }
        });
      });
}

}  // namespace tarn::method
