// The events of a generation for its reader: tokens, text, the end. Two bounded rings, one of
// events and one of text bytes, with one writer (the engine thread) and one reader (any thread of
// the host); the counters are the only thing they share.
//
//   when full    the writer asks has_room() before it lets a session decode: a slow reader stops
//   its own
//                session and no other
//
// Invariant: 0 <= written - read <= capacity, for both rings.
#pragma once

#include <array>
#include <atomic>
#include <span>

#include "platform/base/result.h"
#include "runtime/engine/sessions/sampler.h"
#include "runtime/kv/reused.h"

namespace tarn::engine {

enum class Finish : u8 { none, end, stop, length, cancelled, error, deadline };
const char* finish_name(Finish finish);

enum class EventType : u8 { token, text, done };

// How much of the KV decode rows have read: a row attends to n_read of n_visible slots, in each
// layer and KV head. A row that has chosen them is a step that selected; others read all.
struct KvReads {
  u64 n_select_steps = 0;
  u64 n_read = 0, n_visible = 0;
  void add(u32 n_read_slots, u32 n_visible_slots, bool selects) {
    n_select_steps += selects ? 1 : 0;
    n_read += n_read_slots;
    n_visible += n_visible_slots;
  }
  void add(const KvReads& more) {
    n_select_steps += more.n_select_steps;
    n_read += more.n_read;
    n_visible += more.n_visible;
  }
  f64 ratio() const {
    return n_visible == 0 ? 1.0 : static_cast<f64>(n_read) / static_cast<f64>(n_visible);
  }
};

struct DoneEvent {
  Finish finish = Finish::none;
  Status status = Status::ok;
  Reason reason = Reason::none;
  u32 n_tokens = 0;
  u64 prefill_ns = 0;
  u64 wait_ns = 0;  // of it: until the session had a run slot
  u64 decode_ns = 0;
  KvReads kv_reads{};
  kv::Reused reused{};
};

struct Event {
  EventType type = EventType::token;
  u32 text_bytes = 0;  // text: that many bytes of the text ring belong to it. token: what it adds
                       // to the answer's text, which may be held back or cut
  Sampled token{};
  DoneEvent done{};
};

class EventRing {
 public:
  static constexpr u32 kEvents = 128;
  static constexpr u32 kTextBytes = 16 * 1024;

  void init(std::span<Event> events, std::span<char> text);  // kEvents, kTextBytes
  void clear();                                              // only while no reader is inside

  // Writer. A token may bring text; room for both and for a final text and the end is asked for at
  // once.
  bool has_room(u64 text_bytes) const;
  void push_token(const Sampled& token, u32 text_bytes = 0);
  void push_text(std::string_view text);
  void push_done(const DoneEvent& done);

  // Reader.
  bool has_event() const {
    return events_read_.load(std::memory_order_relaxed) !=
           events_written_.load(std::memory_order_acquire);
  }
  // Takes the next event, or returns false. Text longer than `text` comes in several events.
  bool pop(Event* event, std::span<char> text);

 private:
  Event& slot(u64 idx) { return events_[idx % kEvents]; }
  void push(const Event& event);

  std::span<Event> events_{};
  std::span<char> text_{};
  std::atomic<u64> events_written_{0};
  std::atomic<u64> events_read_{0};
  std::atomic<u64> text_written_{0};
  std::atomic<u64> text_read_{0};
};

}  // namespace tarn::engine
