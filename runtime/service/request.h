// A call on an engine, as it stands in a queue: what it does on the text thread, then on the
// engine's. A blocking call's stands on its caller's stack, a submitted one's in a slot.
//
//   memory   copied as it is: a stage holds what it captured in place. What those values point to
//            is the caller's until the call has ended
//   thread   the queue's lock, but for a stage while it runs
#pragma once

#include <array>
#include <concepts>
#include <new>
#include <type_traits>

#include "platform/base/result.h"
#include "runtime/engine/engine.h"
#include "runtime/service/id_ring.h"

namespace tarn::service {

using engine::Engine;
using engine::SessionIdx;

inline constexpr SessionIdx kNoSession = ~SessionIdx{0};

// A function that returns Result<void>, with what it captured. Trivially copyable, no heap.
template <class... Args>
class Stage {
 public:
  static constexpr u64 kBytes = 144;

  Stage() = default;
  template <class Fn>
  requires(!std::same_as<std::remove_cvref_t<Fn>, Stage> && std::is_invocable_v<Fn&, Args...>)
      Stage(Fn fn) {  // NOLINT(google-explicit-constructor): stands where a function is asked for
    static_assert(std::is_trivially_copyable_v<Fn> && sizeof(Fn) <= kBytes);
    new (bytes_.data()) Fn(fn);
    run_ = [](void* captured, Args... args) -> Result<void> {
      return (*std::launder(static_cast<Fn*>(captured)))(args...);
    };
  }
  explicit operator bool() const { return run_ != nullptr; }
  Result<void> operator()(Args... args) { return run_(bytes_.data(), args...); }

 private:
  Result<void> (*run_)(void* captured, Args... args) = nullptr;
  alignas(8) std::array<std::byte, kBytes> bytes_{};
};

class TextDesk;
using TextStage = Stage<TextDesk&>;
using EngineStage = Stage<Engine&, const Ids&>;  // with what the text stage left

struct Request {
  // One of the stages may be missing, or both of a wait.
  TextStage on_text{};
  EngineStage on_engine{};
  SessionIdx session = kNoSession;  // whose calls it keeps the order of
  // Instead of stages: answered when the session computes nothing, or at deadline_ns (0: none).
  bool waits = false;
  u64 deadline_ns = 0;

  bool is_sure = false;  // carried out though an earlier call of its session failed
  void* user = nullptr;  // of a session that begins; the queue notes that of `session`

  // The queue's.
  enum class State : u8 {
    text,     // waits for the text thread
    reading,  // the text thread has it
    ready,    // waits for the engine's thread
    running,  // that has it
    done
  };
  State state = State::ready;
  bool is_cancelled = false;  // what it begins is cancelled at once
  bool is_submitted = false;
  bool is_behind_failed = false;  // then it is not carried out
  u32 epoch = 0;                  // of its session
  IdRing::Block block{};
  Result<void> result{};
  void* tag = nullptr;  // the host's, of a submitted one
  Request* next = nullptr;
  Request* before = nullptr;
};
static_assert(std::is_trivially_copyable_v<TextStage>);

}  // namespace tarn::service
