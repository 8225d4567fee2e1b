#include "tests/support/emulator/cta_state.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <utility>

namespace tarn::kernels::emulated {
namespace {

// Unwinds a fiber whose CTA has broken a rule.
struct Abandoned {};

constexpr u32 kWordBytes = 4;

bool same(Site a, Site b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

std::string text(Site site) {
  const char* slash = std::strrchr(site.file, '/');
  return std::string(slash != nullptr ? slash + 1 : site.file) + ":" + std::to_string(site.line);
}

}  // namespace

CtaState::CtaState(std::vector<Thread>& threads, GlobalShadow& global, tarn::test::Random& random)
    : threads_(threads), global_(global), random_(random) {}

std::string CtaState::run(const Job& job) {
  job_ = &job;
  global_.begin_cta();
  const u32 n_threads = job.kernel->n_threads;
  while (threads_.size() < n_threads) threads_.emplace_back();
  warps_.assign(n_threads / kWarpLanes, Warp{});
  // The bytes are never written by us: a real CTA finds what the one before it left.
  shared_ = std::make_unique<u8[]>(job.shared_bytes + sizeof(U32x4));
  for (u64 i = 0; i < job.shared_bytes; i += sizeof(u64)) {
    const u64 left = random_.next();
    std::memcpy(shared_.get() + i, &left, sizeof left);
  }
  shadow_.assign(job.shared_bytes / kWordBytes, Shadow{});
  for (u32 i = 0; i < n_threads; ++i) {
    Thread& thread = threads_[i];
    thread.cta = this;
    thread.index = i;
    thread.wait = Thread::Wait::nothing;
    thread.abandoned = false;
    thread.groups.clear();
    thread.open_group.clear();
    thread.fiber->start(&CtaState::body, &thread);
    will_run(i);
  }
  while (can_run() && broken_.empty()) {
    pick();
    threads_[running_].fiber->resume();
  }
  if (broken_.empty() && n_done_ < n_threads) {
    for (u32 i = 0; i < n_threads && broken_.empty(); ++i) {
      if (threads_[i].wait == Thread::Wait::nothing) continue;
      const bool at_barrier = threads_[i].wait == Thread::Wait::barrier;
      broken_ = text(at_barrier ? barrier_site_ : warps_[i / kWarpLanes].site) +
                (at_barrier ? ": not every thread of the CTA reaches this barrier"
                            : ": not every lane of the warp reaches this collective");
    }
  }
  if (!broken_.empty()) {
    for (u32 i = 0; i < n_threads; ++i) {
      running_ = i;
      threads_[i].abandoned = true;
      if (!threads_[i].fiber->done()) threads_[i].fiber->resume();
    }
  }
  return std::move(broken_);
}

void CtaState::body(void* context) {
  Thread& thread = *static_cast<Thread*>(context);
  CtaState& state = *thread.cta;
  if (!thread.abandoned) {
    try {
      Cta cta(state, thread.index, state.job_->block, state.job_->block_y);
      state.job_->kernel->run(cta, state.job_->args);
      if (!thread.groups.empty() || !thread.open_group.empty()) {
        const auto& group = thread.groups.empty() ? thread.open_group : thread.groups.front();
        if (!group.empty()) state.broken(group.front().site, "this copy is never waited for");
      }
    } catch (const Abandoned&) {
    }
  }
  ++state.n_done_;
}

void CtaState::broken(Site site, const std::string& what) {
  if (broken_.empty()) broken_ = text(site) + ": " + what;
  throw Abandoned{};
}

u32 CtaState::draw(u32 bits) {
  const int turned = static_cast<int>(random_.below(kWarpLanes));
  return static_cast<u32>(std::countr_zero(std::rotr(bits, turned)) + turned) % kWarpLanes;
}

void CtaState::pick() {
  if (lanes_left_ == 0) {
    warp_ = draw(warps_runnable_);
    warps_runnable_ &= ~(1U << warp_);
    lanes_left_ = std::exchange(warps_[warp_].runnable, 0);
  }
  const u32 lane = draw(lanes_left_);
  lanes_left_ &= ~(1U << lane);
  running_ = warp_ * kWarpLanes + lane;
}

void CtaState::will_run(u32 thread) {
  warps_[thread / kWarpLanes].runnable |= 1U << thread % kWarpLanes;
  warps_runnable_ |= 1U << thread / kWarpLanes;
}

void CtaState::suspend(u32 index, Thread::Wait wait) {
  Thread& thread = threads_[index];
  thread.wait = wait;
  if (!can_run()) {
    thread.fiber->suspend();
  } else {
    pick();
    if (running_ != index) thread.fiber->hand_over(*threads_[running_].fiber);
  }
  if (thread.abandoned) throw Abandoned{};
}

void CtaState::wake(u32 thread) {
  threads_[thread].wait = Thread::Wait::nothing;
  will_run(thread);
}

void CtaState::wait_barrier(u32 thread, Site site) {
  if (n_at_barrier_ == 0) barrier_site_ = site;
  if (!same(site, barrier_site_)) {
    broken(site, "threads of one CTA wait here and at " + text(barrier_site_));
  }
  if (++n_at_barrier_ == job_->kernel->n_threads) {
    n_at_barrier_ = 0;
    ++epoch_;
    for (u32 i = 0; i < job_->kernel->n_threads; ++i) {
      if (i != thread) wake(i);
    }
    // The last to arrive goes on in its turn, not first.
    will_run(thread);
    suspend(thread, Thread::Wait::nothing);
    return;
  }
  suspend(thread, Thread::Wait::barrier);
}

void CtaState::meet(u32 thread, const Warp::Deposit& deposit, Site site, bool orders_memory) {
  Warp& warp = warps_[thread / kWarpLanes];
  if (warp.n_arrived == 0) warp.site = site;
  if (!same(site, warp.site)) {
    broken(site, "lanes of one warp are here and at " + text(warp.site));
  }
  warp.deposits[warp.filling][thread % kWarpLanes] = deposit;
  if (++warp.n_arrived < kWarpLanes) {
    suspend(thread, Thread::Wait::warp);
    return;
  }
  warp.n_arrived = 0;
  warp.filling ^= 1;
  if (orders_memory) ++warp.epoch;
  const u32 first = thread / kWarpLanes * kWarpLanes;
  for (u32 i = first; i < first + kWarpLanes; ++i) {
    if (i != thread) wake(i);
  }
  will_run(thread);
  suspend(thread, Thread::Wait::nothing);
}

const Warp::Deposit& CtaState::met(u32 thread, u32 lane) const {
  const Warp& warp = warps_[thread / kWarpLanes];
  return warp.deposits[warp.filling ^ 1][lane];
}

CtaState::Stamp CtaState::stamp(u32 thread) const {
  return {thread, epoch_, warps_[thread / kWarpLanes].epoch};
}

bool CtaState::ordered(const Stamp& earlier, u32 thread) const {
  if (earlier.thread == kNobody || earlier.thread == thread || earlier.epoch < epoch_) return true;
  if (earlier.thread == kSeveral) return false;
  const u32 its_warp = (earlier.thread & ~kSeveralLanes) / kWarpLanes;
  return its_warp == thread / kWarpLanes && earlier.warp_epoch < warps_[its_warp].epoch;
}

void CtaState::note_read(Shadow& shadow, u32 thread) {
  const Stamp now = stamp(thread);
  Stamp& last = shadow.reader;
  if (last.thread == kNobody || last.epoch < epoch_ || last.thread == thread) {
    last = now;
    return;
  }
  if (last.thread == kSeveral) return;
  const u32 its_warp = (last.thread & ~kSeveralLanes) / kWarpLanes;
  if (its_warp != thread / kWarpLanes) {
    last.thread = kSeveral;
  } else if (last.warp_epoch < now.warp_epoch) {
    last = now;
  } else {
    last.thread = kSeveralLanes | (its_warp * kWarpLanes);
  }
}

void CtaState::check_alignment(const void* address, u32 n_bytes, Site site) {
  if (reinterpret_cast<std::uintptr_t>(address) % n_bytes == 0) return;
  broken(site, "this address is not a multiple of " + std::to_string(n_bytes));
}

void CtaState::load(const void* address, u32 n_bytes, Site site) {
  check_alignment(address, n_bytes, site);
  if (!global_.is_written(address, n_bytes)) return;
  broken(site, "load() reads what this launch writes, and may find what was there before");
}

void CtaState::store(const void* address, u32 n_bytes, u32 alignment, Site site) {
  check_alignment(address, alignment, site);
  if (!global_.write(address, n_bytes)) broken(site, "writes what another CTA of the launch wrote");
}

void* CtaState::touch(u32 offset, u32 n_bytes, Access access, Site site) {
  if ((offset & (n_bytes - 1)) != 0) {  // 4, 8 or 16
    broken(site, "byte " + std::to_string(offset) + " of shared memory, for " +
                     std::to_string(n_bytes) + " bytes, is not a multiple of them");
  }
  for (u32 word = offset / kWordBytes; word < (offset + n_bytes) / kWordBytes; ++word) {
    Shadow& shadow = shadow_[word];
    if (shadow.copies_pending != 0) broken(site, "an asynchronous copy to this word is under way");
    if (access == Access::read) {
      if (shadow.writer.thread == kNobody) broken(site, "reads shared memory that nobody wrote");
      if (!ordered(shadow.writer, running_)) {
        broken(site, "reads what thread " + std::to_string(shadow.writer.thread) +
                         " wrote, with no barrier between");
      }
      note_read(shadow, running_);
    } else {
      if (!ordered(shadow.writer, running_)) {
        broken(site, "writes where another thread wrote, with no barrier between");
      }
      if (!ordered(shadow.reader, running_)) {
        broken(site, "writes where another thread read, with no barrier between");
      }
      shadow.writer = stamp(running_);
    }
  }
  return shared_.get() + offset;
}

void CtaState::check_carved(u64 end, Site site) {
  if (end > job_->shared_bytes) {
    broken(site, "needs " + std::to_string(end) + " bytes of shared memory; the launch gave " +
                     std::to_string(job_->shared_bytes));
  }
}

void CtaState::copy_async(u32 thread, u32 offset, const void* source, Site site) {
  check_alignment(source, sizeof(U32x4), site);
  touch(offset, sizeof(U32x4), Access::write, site);
  for (u32 i = 0; i < 4; ++i) ++shadow_[offset / kWordBytes + i].copies_pending;
  threads_[thread].open_group.push_back({offset, source, site});
}

void CtaState::copy_commit(u32 thread) {
  threads_[thread].groups.push_back(std::move(threads_[thread].open_group));
  threads_[thread].open_group.clear();
}

void CtaState::land_copies(u32 thread, u32 n_in_flight, Site) {
  auto& groups = threads_[thread].groups;
  while (groups.size() > n_in_flight) {
    for (const Thread::Copy& copy : groups.front()) {
      std::memcpy(shared_.get() + copy.offset, copy.source, sizeof(U32x4));
      for (u32 i = 0; i < 4; ++i) {
        Shadow& shadow = shadow_[copy.offset / kWordBytes + i];
        --shadow.copies_pending;
        shadow.writer = stamp(thread);
      }
    }
    groups.erase(groups.begin());
  }
}

}  // namespace tarn::kernels::emulated
