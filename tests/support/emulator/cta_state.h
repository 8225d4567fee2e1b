// A running CTA: its threads, what they wait for, its shared memory, and a shadow of every word of
// that memory.
//
// Shadow. "Ordered before" is: by the same thread, or in an earlier barrier epoch, or by the same
// warp in an earlier epoch of that warp's sync_warp. A read needs a write, and the last write
// ordered before it; a write needs the last write and the latest reads ordered before it. Keeping
// only the latest epoch's readers is enough, because earlier epochs' readers are ordered before
// every later legal access. Words that an asynchronous copy will fill must not be accessed before
// its wait.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/common/cta_host.h"
#include "tests/support/emulator/fiber.h"
#include "tests/support/emulator/global_shadow.h"
#include "tests/support/seed.h"

namespace tarn::kernels::emulated {

struct Thread {
  enum class Wait : u8 { nothing, barrier, warp };
  std::unique_ptr<test::Fiber> fiber = std::make_unique<test::Fiber>();
  CtaState* cta = nullptr;
  u32 index = 0;
  Wait wait = Wait::nothing;
  bool abandoned = false;  // a rule was broken: unwind
  struct Copy {
    u32 offset;
    const void* source;
    Site site;
  };
  std::vector<std::vector<Copy>> groups;  // committed, oldest first
  std::vector<Copy> open_group;
};

// The inputs of a warp's lanes to a collective.
struct Warp {
  u32 n_arrived = 0;
  Site site{};
  u32 runnable = 0;  // a bit a lane
  u32 epoch = 0;     // of sync_warp
  struct Deposit {
    u32 words[12];  // an mma's c, a and b; a shuffle's value is the first
  };
  // [filling] has the inputs of the lanes that have arrived. The other half has those of the
  // collective before. It is not overwritten before all lanes have read it, because then all have
  // arrived here.
  Deposit deposits[2][kWarpLanes];
  u32 filling = 0;
};

class CtaState {
 public:
  // The pool of threads is reused by all CTAs.
  CtaState(std::vector<Thread>& threads, GlobalShadow& global, tarn::test::Random& random);

  struct Job {
    const EmulatedKernel* kernel;
    const void* args;
    u32 block, block_y;
    u64 shared_bytes;
  };
  // Runs one CTA to its end; returns the text of the broken rule, if any.
  std::string run(const Job& job);

  void* touch(u32 offset, u32 n_bytes, Access access, Site site);
  void load(const void* address, u32 n_bytes, Site site);
  void store(const void* address, u32 n_bytes, u32 alignment, Site site);
  void wait_barrier(u32 thread, Site site);
  void meet(u32 thread, const Warp::Deposit& deposit, Site site, bool orders_memory);
  const Warp::Deposit& met(u32 thread, u32 lane) const;
  void check_carved(u64 end, Site site);
  void copy_async(u32 thread, u32 offset, const void* source, Site site);
  void copy_commit(u32 thread);
  void land_copies(u32 thread, u32 n_in_flight, Site site);
  [[noreturn]] void broken(Site site, const std::string& what);

 private:
  static constexpr u32 kNobody = 0xffffffffu;
  static constexpr u32 kSeveral = 0xfffffffeu;       // readers of more than one warp
  static constexpr u32 kSeveralLanes = 0x80000000u;  // combined with a warp: several of its lanes
  struct Stamp {
    u32 thread = kNobody;
    u32 epoch = 0, warp_epoch = 0;
  };
  struct Shadow {
    Stamp writer, reader;
    u32 copies_pending = 0;
  };
  static void body(void* thread);
  // Which thread runs next, into running_: a warp by chance, and then each of its lanes that can
  // run, in any order. Lanes of one warp share the caches.
  void pick();
  u32 draw(u32 bits);  // the index of one of the bits that are set
  bool can_run() const { return (lanes_left_ | warps_runnable_) != 0; }
  void suspend(u32 index, Thread::Wait wait);
  void wake(u32 thread);
  void will_run(u32 thread);
  void check_alignment(const void* address, u32 n_bytes, Site site);
  bool ordered(const Stamp& earlier, u32 thread) const;
  void note_read(Shadow& shadow, u32 thread);
  Stamp stamp(u32 thread) const;

  std::vector<Thread>& threads_;
  GlobalShadow& global_;
  tarn::test::Random& random_;
  const Job* job_ = nullptr;
  std::vector<Warp> warps_;
  std::unique_ptr<u8[]> shared_;
  std::vector<Shadow> shadow_;
  u32 warps_runnable_ = 0;  // a bit a warp: a CTA has 1,024 threads at most
  u32 warp_ = 0;            // whose turn it is
  u32 lanes_left_ = 0;      // of it, a bit a lane
  u32 running_ = 0;
  u32 epoch_ = 0;
  u32 n_at_barrier_ = 0;
  u32 n_done_ = 0;
  Site barrier_site_{};
  std::string broken_;
};

}  // namespace tarn::kernels::emulated
