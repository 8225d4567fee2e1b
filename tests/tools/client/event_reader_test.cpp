// Goal    events are the same in any cut; comments and other fields are dropped.
// Method  one stream, in all cuts into two and byte by byte; one event without an end.
#include "tools/client/event_reader.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tools/support/exit_code.h"

namespace tarn::tools::event_reader_test {
namespace {

using Events = std::vector<std::string>;

const std::string kStream =
    ": ping\n\ndata: one\n\nevent: x\nid: 1\ndata:two\n\n:\n\ndata: a\ndata:\ndata:  b\r\n\r\n"
    "data: [DONE]\n\ndata: unfinished";
const Events kEvents = {"one", "two", "a\n\n b", "[DONE]"};

void take_all(EventReader& reader, Events& events) {
  while (auto event = reader.next()) events.push_back(*event);
}

TEST_CASE("events are the same in any cut") {
  for (size_t cut = 0; cut <= kStream.size(); ++cut) {
    EventReader reader;
    Events events;
    reader.feed(kStream.substr(0, cut));
    take_all(reader, events);
    reader.feed(kStream.substr(cut));
    take_all(reader, events);
    CAPTURE(cut);
    CHECK(events == kEvents);
  }
  EventReader reader;
  Events events;
  for (const char c : kStream) {
    reader.feed({&c, 1});
    take_all(reader, events);
  }
  CHECK(events == kEvents);
}

TEST_CASE("an event without an end is refused") {
  EventReader reader;
  reader.feed("data: ");
  const std::string more(1024 * 1024, 'x');
  const auto feed_all = [&] {
    for (u64 n = 0; n <= EventReader::kEventBytesMax; n += more.size()) reader.feed(more);
  };
  CHECK_THROWS_AS(feed_all(), Failure);
}

}  // namespace
}  // namespace tarn::tools::event_reader_test
