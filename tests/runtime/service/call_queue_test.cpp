// Goal    the engine's thread gets a session's calls in their order, others pass by a text that is
//         read, and a wait ends when it should.
// Method  queues written down as a line each: session, kind, and what comes out after what.
#include "runtime/service/call_queue.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <string>

namespace tarn::service::call_queue_test {
namespace {

using engine::SessionState;

// "a" a call of session a, "A" one whose text is not read yet, "." one on the engine.
Request request_of(char c) {
  Request request;
  if (c != '.') request.session = static_cast<SessionIdx>((c | 0x20) - 'a');
  request.state = c >= 'A' && c <= 'Z' ? Request::State::text : Request::State::ready;
  return request;
}

TEST_CASE("which calls can be carried out, and in which order") {
  struct Case {
    const char* queue;
    const char* ready;  // places in the queue
  };
  constexpr Case kCases[] = {
      {"", ""},     {"abc", "012"}, {"aaa", "012"}, {"Aaa", ""},      {"aAa", "0"},
      {"Aba", "1"}, {"A.b", "12"},  {"BabAa", "1"}, {"..Bb.", "014"},
  };
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.queue));
    std::array<Request, 8> requests;
    CallQueue queue;
    const std::string line = c.queue;
    for (u64 i = 0; i < line.size(); ++i) {
      requests[i] = request_of(line[i]);
      queue.add(&requests[i]);
    }
    std::string got;
    while (const Request* ready = queue.take_ready()) {
      got += static_cast<char>('0' + (ready - requests.data()));
    }
    CHECK(got == c.ready);
  }
}

TEST_CASE(
    "a wait ends when its session computes nothing, with earlier calls behind it, or in time") {
  const auto board = std::make_unique<SessionBoard>();
  const auto state = [&](SessionState to) { board->of(0).progress.state = to; };
  Request wait{.session = 0, .waits = true, .deadline_ns = 100};
  Request call = request_of('a');
  CallQueue queue;
  state(SessionState::computing);
  queue.add(&wait);
  CHECK(queue.take_settled(*board, 99) == nullptr);
  CHECK(queue.take_ready() == nullptr);
  CHECK(queue.next_deadline_ns() == 100);
  state(SessionState::idle);
  CHECK(queue.take_settled(*board, 0) == &wait);
  CHECK(wait.result.has_value());
  CHECK(queue.next_deadline_ns() == 0);

  // A call before it has not been carried out.
  queue.add(&call);
  queue.add(&wait);
  CHECK(queue.take_settled(*board, 0) == nullptr);
  CHECK(queue.take_ready() == &call);
  queue.set_running(&call);
  CHECK(queue.take_settled(*board, 0) == nullptr);
  queue.set_running(nullptr);
  state(SessionState::computing);
  CHECK(queue.take_settled(*board, 99) == nullptr);
  CHECK(queue.take_settled(*board, 100) == &wait);
  CHECK(wait.result.error().status == Status::would_block);

  // Behind a wait a call goes on; a session that ends, or another in its place, ends the wait.
  state(SessionState::computing);
  wait.deadline_ns = 0;
  queue.add(&wait);
  queue.add(&call);
  CHECK(queue.take_ready() == &call);
  CHECK(queue.take_settled(*board, ~u64{0}) == nullptr);
  ++board->of(0).epoch;
  CHECK(queue.take_settled(*board, 0) == &wait);
  CHECK(wait.result.error().status == Status::invalid_request);
  wait.epoch = board->of(0).epoch;
  state(SessionState::free);
  queue.add(&wait);
  CHECK(queue.take_settled(*board, 0) == &wait);
  CHECK(wait.result.error().status == Status::invalid_request);
}

TEST_CASE("a cancel marks what stands in the queue and what runs, of its session alone") {
  std::array<Request, 3> requests = {request_of('a'), request_of('b'), request_of('A')};
  Request running = request_of('a');
  CallQueue queue;
  for (Request& request : requests) queue.add(&request);
  queue.set_running(&running);
  queue.cancel(0);
  CHECK(requests[0].is_cancelled);
  CHECK_FALSE(requests[1].is_cancelled);
  CHECK(requests[2].is_cancelled);
  CHECK(running.is_cancelled);
}

}  // namespace
}  // namespace tarn::service::call_queue_test
