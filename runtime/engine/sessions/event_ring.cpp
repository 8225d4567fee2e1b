#include "runtime/engine/sessions/event_ring.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::engine {

const char* finish_name(Finish finish) {
  constexpr const char* kNames[] = {"none",      "stop",  "stop",    "length",
                                    "cancelled", "error", "deadline"};
  const auto idx = static_cast<u64>(finish);
  return idx < std::size(kNames) ? kNames[idx] : "none";
}

void EventRing::init(std::span<Event> events, std::span<char> text) {
  TARN_ASSERT(events.size() == kEvents && text.size() == kTextBytes);
  events_ = events;
  text_ = text;
  clear();
}

void EventRing::clear() {
  events_written_.store(0);
  events_read_.store(0);
  text_written_.store(0);
  text_read_.store(0);
}

bool EventRing::has_room(u64 text_bytes) const {
  const u64 n_events = events_written_.load(std::memory_order_relaxed) -
                       events_read_.load(std::memory_order_acquire);
  const u64 n_bytes =
      text_written_.load(std::memory_order_relaxed) - text_read_.load(std::memory_order_acquire);
  constexpr u64 kEventsAToken = 5;  // token, its text, what was held back twice, the end
  return n_events + kEventsAToken <= kEvents && n_bytes + text_bytes <= kTextBytes;
}

void EventRing::push(const Event& event) {
  const u64 idx = events_written_.load(std::memory_order_relaxed);
  slot(idx) = event;
  events_written_.store(idx + 1, std::memory_order_release);
}

void EventRing::push_token(const Sampled& token, u32 text_bytes) {
  push({.type = EventType::token, .text_bytes = text_bytes, .token = token});
}

void EventRing::push_text(std::string_view text) {
  if (text.empty()) return;
  const u64 begin = text_written_.load(std::memory_order_relaxed);
  TARN_ASSERT(begin + text.size() - text_read_.load(std::memory_order_acquire) <= kTextBytes);
  for (u64 i = 0; i < text.size(); ++i) text_[(begin + i) % kTextBytes] = text[i];
  text_written_.store(begin + text.size(), std::memory_order_relaxed);
  // Releases the bytes with the event.
  push({.type = EventType::text, .text_bytes = static_cast<u32>(text.size())});
}

void EventRing::push_done(const DoneEvent& done) { push({.type = EventType::done, .done = done}); }

bool EventRing::pop(Event* event, std::span<char> text) {
  const u64 idx = events_read_.load(std::memory_order_relaxed);
  if (idx == events_written_.load(std::memory_order_acquire)) return false;
  *event = slot(idx);
  if (event->type == EventType::text) {
    const u64 begin = text_read_.load(std::memory_order_relaxed);
    u32 n = static_cast<u32>(std::min<u64>(event->text_bytes, text.size()));
    if (n < event->text_bytes) {  // a cut stands between characters
      const auto is_inside = [&](u32 i) {
        return (text_[(begin + i) % kTextBytes] & 0xC0) == 0x80;
      };
      u32 whole = n;
      while (whole > 0 && is_inside(whole)) --whole;
      if (whole > 0) n = whole;
    }
    for (u32 i = 0; i < n; ++i) text[i] = text_[(begin + i) % kTextBytes];
    text_read_.store(begin + n, std::memory_order_release);
    event->text_bytes = n;
    if (n < slot(idx).text_bytes) {  // the reader owns this slot until it moves on
      slot(idx).text_bytes -= n;
      return true;
    }
  }
  events_read_.store(idx + 1, std::memory_order_release);
  return true;
}

}  // namespace tarn::engine
