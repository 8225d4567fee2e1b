#include "runtime/service/service.h"

#include <algorithm>

namespace tarn::service {
namespace {

// Until the deadline, or the next look at whether the engine still lives.
u64 next_look_ns(u64 deadline_ns) {
  if (deadline_ns == 0) return kDeadCheckNs;
  const u64 now_ns = SystemClock().now_ns();
  return now_ns < deadline_ns ? std::min(kDeadCheckNs, deadline_ns - now_ns) : 0;
}

}  // namespace

u64 deadline_ns_of(i32 timeout_ms) {
  if (timeout_ms < 0) return 0;
  return SystemClock().now_ns() + static_cast<u64>(timeout_ms) * 1'000'000;
}

const FatalSink* Service::prepare(FatalFn on_fatal, void* context) {
  common_.life.set_hook(on_fatal, context);
  return engine_thread_.sink();
}

Result<void> Service::start(Engine* engine, std::span<const u32> cpus) {
  common_.engine = engine;
  TARN_CHECK(common_.outbox.open());
  TARN_CHECK(engine_thread_.start(cpus));
  return text_thread_.start(cpus);
}

bool Service::stop() {
  if (!engine_thread_.is_running()) return true;
  if (!common_.life.is_in_own_process() || common_.life.is_on_own_thread()) return false;
  {
    Lock lock(common_.mutex);
    common_.stopping = true;
    common_.engine->sessions().request_end();  // a step under way need not be waited for
    common_.work.notify_all();
    common_.texts.notify_all();
    common_.news.notify_all();
    while ((!common_.engine_ended || common_.n_visitors > 0) && !is_dead()) {
      common_.news.wait_for(lock, kDeadCheckNs);
    }
  }
  is_dead() ? engine_thread_.detach() : engine_thread_.join();
  text_thread_.end();
  return true;
}

Service::Visit::Visit(Service& service)
    : common_(service.common_), is_admitted_(common_.life.is_in_own_process()) {
  if (!is_admitted_) return;
  const Lock lock(common_.mutex);
  ++common_.n_visitors;
}

Service::Visit::~Visit() {
  if (!common_.life.is_in_own_process()) return;  // its caller's callback has forked
  const Lock lock(common_.mutex);
  --common_.n_visitors;
  common_.news.notify_all();
}

void Service::enter(Request* request) {
  using State = Request::State;
  request->state = request->on_text ? State::text : State::ready;
  if (request->session != kNoSession) {
    const SessionRow& row = common_.board.of(request->session);
    request->epoch = row.epoch;
    request->user = row.user;
    request->is_behind_failed = request->is_submitted && !request->is_sure && row.n_failed > 0;
  }
  common_.queue.add(request);
  if (request->waits) common_.settle_waits();
  (request->on_text ? common_.texts : common_.work).notify_one();
}

Result<void> Service::call(Request request) {
  Lock lock(common_.mutex);
  TARN_CHECK(common_.may_wait());
  if (request.on_text && common_.life.is_text_broken()) return has_broken_text();
  enter(&request);
  return wait_for(&request, lock);
}

// Waits for a blocking call. One whose text is being read stays until the text thread has let go of
// it.
Result<void> Service::wait_for(Request* request, Lock& lock) {
  using State = Request::State;
  while (request->state != State::done) {
    if (is_dead() && request->state != State::reading) {
      if (request->state == State::running) {
        common_.queue.set_running(nullptr);
      } else {
        common_.queue.remove(request);
      }
      return service::is_dead();
    }
    common_.news.wait_for(lock, next_look_ns(request->deadline_ns));
    if (request->waits) common_.settle_waits();
  }
  return request->result;
}

Result<void> Service::submit(const Request& request, void* tag) {
  const Lock lock(common_.mutex);
  TARN_CHECK(common_.may_wait());
  if (request.on_text && common_.life.is_text_broken()) return has_broken_text();
  Request* const slot = common_.outbox.take_slot();
  if (slot == nullptr) {
    return fail({.status = Status::would_block,
                 .reason = Reason::busy_calls,
                 .hint = "so many submitted calls have no reply, or it was not taken: call "
                         "tarn_engine_take",
                 .figures = {{{"calls", Outbox::kSlots}}}});
  }
  *slot = request;
  slot->is_submitted = true;
  slot->tag = tag;
  enter(slot);
  common_.refresh();
  return {};
}

Result<void> Service::take(Taken* taken, std::span<char> text) {
  const Lock lock(common_.mutex);
  if (!is_dead() && common_.life.is_on_own_thread()) return common_.may_wait();
  common_.refresh();
  if (Request* const reply = common_.outbox.pop_reply()) {
    *taken = {.is_reply = true,
              .session = reply->session,
              .user = reply->user,
              .tag = reply->tag,
              .result = reply->result};
    if (common_.is_failure(*reply)) --common_.board.of(reply->session).n_failed;
    common_.outbox.give_back(reply);
    common_.refresh();
    return {};
  }
  *taken = {};
  if (common_.outbox.take_event(*common_.engine, common_.board, &taken->session, &taken->event,
                                text)) {
    taken->user = common_.board.of(taken->session).user;
    common_.work.notify_one();  // the session may have been waiting for room
    common_.refresh();
    return {};
  }
  if (common_.outbox.n_unanswered() == 0) TARN_CHECK(common_.may_go_on());
  return fail({.status = Status::would_block,
               .reason = Reason::not_yet,
               .hint = "there is no reply and no event now"});
}

int Service::watch() {
  const Lock lock(common_.mutex);
  const bool is_first = !common_.outbox.is_watched();
  const int fd = common_.outbox.watch();
  if (is_first) common_.refresh();
  return fd;
}

Result<void> Service::next_event(SessionIdx idx, i32 timeout_ms, Taken* taken,
                                 std::span<char> text) {
  const u64 deadline_ns = deadline_ns_of(timeout_ms);
  Lock lock(common_.mutex);
  for (;;) {
    const SessionRow& row = common_.board.of(idx);
    if (!row.is_read) {
      return fail({.status = Status::invalid_request,
                   .reason = Reason::wrong_state,
                   .hint = "the session generates nothing: call tarn_session_generate"});
    }
    if (take_event_of(*common_.engine, common_.board, idx, &taken->event, text)) {
      taken->session = idx;
      taken->user = row.user;
      common_.work.notify_one();  // the session may have been waiting for room
      common_.refresh();
      return {};
    }
    TARN_CHECK(common_.may_wait());
    const u64 look_ns = next_look_ns(deadline_ns);
    if (look_ns == 0) {
      return fail({.status = Status::would_block,
                   .reason = Reason::not_yet,
                   .hint = "no event within the time allowed"});
    }
    common_.news.wait_for(lock, look_ns);
  }
}

Result<Progress> Service::progress(SessionIdx idx) {
  const Lock lock(common_.mutex);
  TARN_CHECK(common_.may_wait());
  const SessionRow& row = common_.board.of(idx);
  if (row.is_free()) return is_destroyed();
  return row.progress;
}

Result<void> Service::request_cancel(SessionIdx idx) {
  if (is_dead()) return service::is_dead();
  if (common_.engine->device_lost()) return is_lost();
  const Lock lock(common_.mutex);
  common_.queue.cancel(idx);
  common_.engine->sessions().request_cancel(idx);
  common_.work.notify_one();
  return {};
}

void Service::begin_session(SessionIdx idx) {
  const Lock lock(common_.mutex);
  Request* const call = common_.queue.running();
  const bool is_of_engine = call != nullptr && call->session == kNoSession;
  common_.board.of(idx).user = is_of_engine ? call->user : nullptr;
  if (is_of_engine) call->session = idx;  // its reply tells of it
}

void Service::end_session(SessionIdx idx) {
  const Lock lock(common_.mutex);
  SessionRow& row = common_.board.of(idx);
  ++row.epoch;
  row.n_failed = 0;
  row.is_read = false;  // a waiting poll returns
  common_.news.notify_all();
}

void Service::begin_reading(SessionIdx idx) {
  const Lock lock(common_.mutex);
  common_.board.of(idx).is_read = true;
}

bool Service::is_read(SessionIdx idx) {
  const Lock lock(common_.mutex);
  return common_.board.of(idx).is_read;
}

}  // namespace tarn::service
