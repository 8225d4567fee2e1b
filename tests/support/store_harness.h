// A store with its memory, and functions that run one operation to its end. The bytes of its
// records follow from a number, so that a read can be checked.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>

#include "platform/base/checked.h"
#include "runtime/store/store.h"
#include "tests/support/io_worlds.h"
#include "tests/support/store_invariants.h"

namespace tarn::test {

// Record `id` of a test.
struct TestRecord {
  store::Key key{};
  store::Kind kind = store::Kind::group;
  std::vector<u32> token_ids{};
  u64 payload_bytes = 0;
  std::vector<std::byte> payload{};  // padded
};

inline store::Key key_of(u64 id) { return {.low = Random(id).next(), .high = id}; }

struct TestRecordShape {
  u64 payload_bytes = 6000;
  u32 n_tokens = 16;
  store::Kind kind = store::Kind::group;
  u64 version = 0;  // other content under the same key
};
inline TestRecord record_of(u64 id, const TestRecordShape& shape = {}) {
  Random random(id * 31 + shape.version);
  TestRecord record{.key = key_of(id), .kind = shape.kind, .payload_bytes = shape.payload_bytes};
  for (u32 i = 0; i < shape.n_tokens; ++i)
    record.token_ids.push_back(static_cast<u32>(random.next()));
  record.payload.resize(align_up(shape.payload_bytes, kSectorBytes));
  for (u64 i = 0; i < shape.payload_bytes; i += 8) {
    const u64 word = random.next();
    std::memcpy(record.payload.data() + i, &word, std::min<u64>(8, shape.payload_bytes - i));
  }
  return record;
}

class StoreHarness {
 public:
  StoreHarness(IoBackend& io, Clock& clock, const char* path, const store::StoreLimits& limits,
               u64 entropy = 1)
      : io_(io), clock_(clock), path_(path), limits_(limits), entropy_(entropy) {
    const auto bytes = store::store_bytes(limits);
    REQUIRE(bytes.has_value());
    memory_.resize(*bytes + 64, std::byte{0x5A});
  }
  StoreHarness(const StoreHarness&) = delete;
  StoreHarness& operator=(const StoreHarness&) = delete;
  ~StoreHarness() {
    if (!was_killed) store.~Store();
  }

  store::Mode open() {
    store::StoreOpenArgs args{.io = &io_,
                              .clock = &clock_,
                              .path = path_,
                              .limits = limits_,
                              .memory = std::span(memory_).first(memory_.size() - 64),
                              .crc = &crc32c_ways()[0]};
    std::memcpy(args.entropy.data(), &entropy_, sizeof entropy_);
    const bool is_open = store.open(args).has_value();
    REQUIRE(is_open == (store.mode() == store::Mode::on));
    return store.mode();
  }

  // Buffers live as long as the harness, because an abandoned store may still use them.
  std::span<std::byte> buffer(u64 n_bytes) {
    buffers_.push_back(std::make_unique<SectorBuffer>(n_bytes));
    return buffers_.back()->span();
  }

  // The buffer of an odd tag is returned early, and then overwritten, as its owner may do.
  store::Begun begin_put(const TestRecord& record, u64 tag,
                         store::PutArgs::If known = store::PutArgs::If::absent) {
    const auto payload = buffer(record.payload.size());
    std::copy(record.payload.begin(), record.payload.end(), payload.begin());
    using Payload = store::PutArgs::Payload;
    if (tag % 2 == 1) given_back_early_[tag] = payload;
    return store.put({.kind = record.kind,
                      .key = record.key,
                      .token_ids = record.token_ids,
                      .payload = payload,
                      .payload_bytes = record.payload_bytes,
                      .known = known,
                      .kept = tag % 2 == 1 ? Payload::until_written : Payload::until_event,
                      .tag = tag});
  }

  void poll(u64 timeout_ns) {
    std::array<store::Event, 8> out;
    const u32 n = store.poll(out, timeout_ns);
    for (u32 i = 0; i < n; ++i) {
      if (out[i].outcome != store::Outcome::written) {
        events.push_back(out[i]);
        continue;
      }
      const auto payload = given_back_early_.at(out[i].tag);
      std::fill(payload.begin(), payload.end(), std::byte{0xEE});
      ++n_written_early;
    }
  }

  // Waits for the event of this operation, and takes it.
  store::Event wait_for(u64 tag) {
    for (u64 i = 0; i < 1'000'000; ++i) {
      const auto found = std::find_if(events.begin(), events.end(),
                                      [&](const store::Event& event) { return event.tag == tag; });
      if (found != events.end()) {
        const store::Event event = *found;
        events.erase(found);
        return event;
      }
      poll(1'000'000'000);
    }
    FAIL("no event of ", tag);
    return {};
  }

  bool put(const TestRecord& record, store::PutArgs::If known = store::PutArgs::If::absent) {
    const u64 tag = next_tag_++;
    if (begin_put(record, tag, known) != store::Begun::begun) return false;
    return wait_for(tag).outcome == store::Outcome::ok;
  }
  bool flush() {
    const u64 tag = next_tag_++;
    if (store.flush(tag) != store::Begun::begun) return false;
    return wait_for(tag).outcome == store::Outcome::ok;
  }

  enum class Got : u8 { right, absent, wrong };
  // `absent` for every legal outcome without the right bytes; `wrong` must never happen.
  Got get(const TestRecord& record) {
    const auto found = store.find(record.key);
    if (!found) return Got::absent;
    const u64 n_bytes = store.index().entry(*found).payload_bytes;
    const auto payload = buffer(align_up(n_bytes, kSectorBytes));
    const u64 tag = next_tag_++;
    const store::ReadArgs args{
        .ref = *found, .token_ids = record.token_ids, .payload = payload, .tag = tag};
    if (store.read(args) != store::Begun::begun) return Got::absent;
    last = wait_for(tag);
    if (last.outcome != store::Outcome::ok) return Got::absent;
    const bool same = payload.size() == record.payload.size() &&
                      std::equal(payload.begin(), payload.end(), record.payload.begin());
    return same ? Got::right : Got::wrong;
  }
  void drain() {
    for (u64 i = 0; !store.idle(); ++i) {
      REQUIRE(i < 100'000);
      poll(1'000'000'000);
    }
  }
  void check() {
    if (store.mode() != store::Mode::off) check_invariants(store.index());
    const auto canary = std::span(memory_).last(64);
    REQUIRE(std::count(canary.begin(), canary.end(), std::byte{0x5A}) == 64);
  }
  void close() {
    drain();
    store.close();
  }

 private:
  alignas(store::Store) std::byte store_memory_[sizeof(store::Store)];

 public:
  store::Store& store = *new (store_memory_) store::Store;
  std::vector<store::Event> events;
  store::Event last{};
  u64 n_written_early = 0;  // buffers returned before their put ended
  bool was_killed = false;  // a killed process runs no destructors

 private:
  IoBackend& io_;
  Clock& clock_;
  const char* path_;
  store::StoreLimits limits_;
  u64 entropy_;
  u64 next_tag_ = 1'000'000;
  std::vector<std::byte> memory_;
  std::vector<std::unique_ptr<SectorBuffer>> buffers_;
  std::map<u64, std::span<std::byte>> given_back_early_;  // by tag
};

}  // namespace tarn::test
