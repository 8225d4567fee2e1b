#include "tools/tarnd/answers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/api/tarn_chat.h"
#include "runtime/api/tarn_store.h"
#include "tools/tarnd/engine_error.h"

namespace tarn::daemon {
namespace {

void add_parts(const std::vector<std::string>& chunks, const Prompt& prompt,
               std::vector<tarn_part>* parts) {
  for (const std::string& chunk : chunks) {
    tarn_part part = TARN_INIT(tarn_part);
    part.is_chunk = 1;
    part.text = chunk.data();
    part.text_bytes = chunk.size();
    parts->push_back(part);
  }
  tarn_part own = TARN_INIT(tarn_part);
  own.text = prompt.has_ids ? nullptr : prompt.text.data();
  own.text_bytes = prompt.has_ids ? 0 : prompt.text.size();
  own.ids = prompt.ids.data();
  own.n_ids = prompt.ids.size();
  parts->push_back(own);
}

}  // namespace

Answer::Answer(Answers& all, AnswerPlan plan, std::unique_ptr<AnswerSink> sink)
    : all_(all), plan_(std::move(plan)), sink_(std::move(sink)) {
  for (const std::string& stop : plan_.stops) stop_texts_.push_back(stop.c_str());
  plan_.options.stops = stop_texts_.data();
  plan_.options.n_stops = static_cast<u32>(stop_texts_.size());
  plan_.options.logit_biases = plan_.biases.data();
  plan_.options.n_logit_biases = static_cast<u32>(plan_.biases.size());
  for (const Prompt& prompt : plan_.prompts) {
    if (!plan_.chunks.empty()) add_parts(plan_.chunks, prompt, &parts_);
  }
  n_undone_ = plan_.n_prompts() * plan_.n_choices;
  lanes_.resize(n_undone_);
  forks_left_.assign(plan_.n_prompts(), plan_.n_choices - 1);
}

void Answer::call(EnginePort::Submit submit, u32 choice, Step step) {
  ++n_pending_;
  all_.port_.call(std::move(submit), [this, choice, step](const tarn_event& reply) {
    --n_pending_;
    (this->*step)(choice, reply);
  });
}

HttpError Answer::refusal(const tarn_event& reply) const {
  return http_error(error_in(reply), plan_.is_chat ? "messages" : "prompt");
}

tarn_session_options Answer::session_options() const {
  tarn_session_options options = TARN_INIT(tarn_session_options);
  if (!plan_.tenant.empty()) options.tenant = plan_.tenant.c_str();
  options.priority = plan_.is_background ? TARN_BACKGROUND : TARN_INTERACTIVE;
  return options;
}

void Answer::start() {
  for (u32 prompt = 0; prompt < plan_.n_prompts(); ++prompt) {
    const u32 choice = prompt * plan_.n_choices;
    lanes_[choice].stage = Stage::opening;
    if (plan_.session.empty()) {
      create(choice);
      continue;
    }
    lanes_[choice].is_new = false;
    call(
        [this, choice](tarn_engine* engine, void* request) {
          const tarn_session_options options = session_options();
          return tarn_submit_restore(engine, &options, plan_.session.c_str(),
                                     &lanes_[choice].session, nullptr, request);
        },
        choice, &Answer::restored);
  }
}

void Answer::create(u32 choice) {
  call(
      [this, choice](tarn_engine* engine, void* request) {
        const tarn_session_options options = session_options();
        return tarn_submit_create(engine, &options, &lanes_[choice].session, request);
      },
      choice, &Answer::created);
}

void Answer::restored(u32 choice, const tarn_event& reply) {
  if (reply.status == TARN_NOT_FOUND && !is_over()) {
    lanes_[choice].is_new = true;
    return create(choice);
  }
  created(choice, reply);
}

void Answer::created(u32 choice, const tarn_event& reply) {
  Lane& lane = lanes_[choice];
  if (reply.status != TARN_OK) {
    lane.stage = Stage::closed;
    fail(refusal(reply));
    return check_end();
  }
  opened(choice);
  if (is_over()) return;
  if (plan_.session.empty() || !lane.is_new) return feed(choice);
  call(
      [this, choice](tarn_engine*, void* request) {
        return tarn_submit_keep(lanes_[choice].session, plan_.session.c_str(), request);
      },
      choice, &Answer::kept);
}

void Answer::opened(u32 choice) {
  lanes_[choice].stage = Stage::open;
  all_.owners_[lanes_[choice].session] = {this, choice};
  if (is_over()) close(choice);
}

void Answer::kept(u32 choice, const tarn_event& reply) {
  if (reply.status != TARN_OK) return fail(refusal(reply));
  if (!is_over()) feed(choice);
}

void Answer::feed(u32 choice) {
  const bool is_new = lanes_[choice].is_new;
  call(
      [this, choice, is_new](tarn_engine*, void* request) {
        tarn_session* const session = lanes_[choice].session;
        if (plan_.is_chat) {
          tarn_chat_options options = TARN_INIT(tarn_chat_options);
          options.no_generation_prompt = plan_.has_generation_prompt ? 0 : 1;
          const std::string& arguments = plan_.arguments_json;
          options.arguments_json = arguments.empty() ? nullptr : arguments.c_str();
          options.has_chunks = plan_.has_chunks ? 1 : 0;
          options.recompute = plan_.has_chunks ? plan_.recompute : 0;
          return tarn_submit_feed_chat(session, plan_.messages_json.data(),
                                       plan_.messages_json.size(), &options, request);
        }
        const Prompt& prompt = plan_.prompts[choice / plan_.n_choices];
        if (!parts_.empty()) {
          const u32 n = static_cast<u32>(plan_.chunks.size()) + 1;
          const u32 flags = TARN_PARSE_SPECIAL | (is_new ? u32{TARN_ADD_SPECIAL} : 0);
          return tarn_submit_feed_parts(session, parts_.data() + choice / plan_.n_choices * n, n,
                                        plan_.recompute, flags, request);
        }
        if (prompt.has_ids) {
          return tarn_submit_feed(session, prompt.ids.data(), prompt.ids.size(), request);
        }
        const u32 flags = TARN_PARSE_SPECIAL | (is_new ? u32{TARN_ADD_SPECIAL} : 0);
        return tarn_submit_feed_text(session, prompt.text.data(), prompt.text.size(), flags,
                                     request);
      },
      choice, &Answer::fed);
}

void Answer::fed(u32 choice, const tarn_event& reply) {
  if (is_over()) return check_end();
  if (reply.status != TARN_OK) return fail(refusal(reply));
  // Before it generates: these are the prompt's tokens alone.
  tarn_session_info info = TARN_INIT(tarn_session_info);
  if (tarn_session_info_get(lanes_[choice].session, &info) == TARN_OK) {
    summary_.n_prompt_tokens += info.n_tokens;
  }
  if (info.n_tokens == 0 && !plan_.reads_alone) {
    return fail(invalid_request(
        "'prompt' is empty, and this model begins no text by itself: give it a text", "prompt"));
  }
  if (plan_.n_choices == 1 && !plan_.reads_alone) return generate(choice);
  call(
      [this, choice](tarn_engine*, void* request) {
        return tarn_submit_wait(lanes_[choice].session, -1, request);
      },
      choice, &Answer::computed);
}

void Answer::computed(u32 choice, const tarn_event& reply) {
  if (is_over()) return check_end();
  if (reply.status != TARN_OK) return fail(refusal(reply));
  if (plan_.reads_alone) return read(choice);
  for (u32 i = 1; i < plan_.n_choices; ++i) {
    lanes_[choice + i].stage = Stage::opening;
    call(
        [this, choice, i](tarn_engine*, void* request) {
          return tarn_submit_fork(lanes_[choice].session, &lanes_[choice + i].session, request);
        },
        choice + i, &Answer::forked);
  }
}

// Without one of this session the last answer's stays.
void Answer::explain(u32 choice) {
  tarn_explanation explanation = TARN_INIT(tarn_explanation);
  if (tarn_session_explain(lanes_[choice].session, &explanation) == TARN_OK)
    summary_.explanation = explanation;
}

// Nothing was to be generated.
void Answer::read(u32 choice) {
  tarn_session_info info = TARN_INIT(tarn_session_info);
  if (tarn_session_info_get(lanes_[choice].session, &info) == TARN_OK) {
    summary_.n_from_memory += info.reused_from_memory;
    summary_.n_from_disk += info.reused_from_disk;
  }
  explain(choice);
  begin();
  const u32 n = plan_.n_choices;
  for (u32 i = 0; i < n && !is_over(); ++i) lane_done(choice + i, TARN_FINISH_LENGTH);
}

void Answer::forked(u32 choice, const tarn_event& reply) {
  if (reply.status != TARN_OK) {
    lanes_[choice].stage = Stage::closed;
    fail(refusal(reply));
    return check_end();
  }
  opened(choice);
  const u32 prompt = choice / plan_.n_choices;
  if (is_over() || --forks_left_[prompt] > 0) return;
  for (u32 i = 0; i < plan_.n_choices; ++i) generate(prompt * plan_.n_choices + i);
}

void Answer::generate(u32 choice) {
  call(
      [this, choice](tarn_engine*, void* request) {
        tarn_generate_options options = plan_.options;
        options.seed += choice;
        return tarn_submit_generate(lanes_[choice].session, &options, request);
      },
      choice, &Answer::generating);
}

void Answer::generating(u32 choice, const tarn_event& reply) {
  if (is_over()) return check_end();
  if (reply.status != TARN_OK) return fail(refusal(reply));
  lanes_[choice].stage = Stage::generating;
  begin();
}

void Answer::begin() {
  if (!std::exchange(has_begun_, true)) sink_->begun(summary_);
}

void Answer::on_event(u32 choice, const tarn_event& event) {
  if (is_over()) return;
  if (event.type == TARN_EVENT_TOKEN) sink_->token(choice, event);
  if (event.type == TARN_EVENT_TEXT) sink_->text(choice, {event.text, event.text_bytes});
  if (event.type == TARN_EVENT_DONE) done(choice, event);
}

void Answer::done(u32 choice, const tarn_event& event) {
  if (event.finish == TARN_FINISH_CANCELLED || event.finish == TARN_FINISH_ERROR) {
    Lane& lane = lanes_[choice];
    lane.status = event.status == TARN_OK ? int32_t{TARN_CANCELLED} : event.status;
    lane.reason = event.reason;
    lane.stage = Stage::done;
    return call(
        [this, choice](tarn_engine*, void* request) {
          return tarn_submit_wait(lanes_[choice].session, 0, request);
        },
        choice, &Answer::ended_early);
  }
  summary_.n_generated += event.n_tokens;
  if (event.n_tokens > 1) {
    all_.totals_.between_tokens.add_ns(event.decode_ns / (event.n_tokens - 1));
  }
  summary_.decode_ns = std::max(summary_.decode_ns, event.decode_ns);
  summary_.n_select_steps += event.select_steps;
  summary_.kv_read_ratio = std::min(summary_.kv_read_ratio, event.kv_read_ratio);
  if (choice % plan_.n_choices == 0) {
    summary_.prefill_ns = std::max(summary_.prefill_ns, event.prefill_ns);
    summary_.n_from_memory += event.reused_from_memory;
    summary_.n_from_disk += event.reused_from_disk;
    summary_.n_placed += event.n_placed;
    summary_.n_recomputed += event.n_recomputed;
    all_.totals_.wait.add_ns(event.wait_ns);
    explain(choice);
  }
  lane_done(choice, event.finish);
}

// The reply has the sentence, if there is one.
void Answer::ended_early(u32 choice, const tarn_event& reply) {
  if (is_over()) return check_end();
  if (reply.status != TARN_OK) return fail(refusal(reply));
  const Lane& lane = lanes_[choice];
  fail(http_error(
      {.status = lane.status,
       .reason = lane.reason,
       .text = std::string("the answer ended early: ") + tarn_status_name(lane.status)}));
}

void Answer::lane_done(u32 choice, int32_t finish) {
  const bool is_open = lanes_[choice].session != nullptr;
  lanes_[choice].stage = is_open ? Stage::done : Stage::closed;
  --n_undone_;
  sink_->done(choice, finish, summary_, n_undone_ == 0);
  if (is_over()) return;  // the client went away while it was told
  if (is_open) close(choice);
  if (n_undone_ > 0) return;
  Answers::Totals& totals = all_.totals_;
  totals.n_prompt_tokens += summary_.n_prompt_tokens;
  totals.n_reused_tokens += summary_.n_from_memory + summary_.n_from_disk;
  totals.n_generated += summary_.n_generated;
  totals.prefill_ns += summary_.prefill_ns;
  totals.decode_ns += summary_.decode_ns;
  totals.explanation = summary_.explanation;
  // A kept session's next request may come at once, and needs its name.
  if (!plan_.session.empty()) return;
  const std::unique_ptr<AnswerSink> sink = std::move(sink_);
  sink->finished(summary_);
}

void Answer::abandon() {
  if (sink_ == nullptr) return;
  past_sink_ = std::move(sink_);  // it may be in a call of ours
  close_all();
  check_end();
}

void Answer::fail(const HttpError& error) {
  if (is_over()) return;
  if (!plan_.session.empty()) {  // told when its name is free, as with lane_done()
    failure_ = error;
    return close_all();
  }
  const std::unique_ptr<AnswerSink> sink = std::move(sink_);
  close_all();
  sink->failed(error);
}

void Answer::close_all() {
  for (u32 choice = 0; choice < lanes_.size(); ++choice) close(choice);
}

void Answer::close(u32 choice) {
  Lane& lane = lanes_[choice];
  if (lane.stage == Stage::none) lane.stage = Stage::closed;
  if (lane.stage == Stage::opening || lane.stage >= Stage::closing) return;
  if (lane.stage != Stage::done) tarn_session_cancel(lane.session);
  lane.stage = Stage::closing;
  if (!plan_.session.empty()) {
    call(
        [this, choice](tarn_engine*, void* request) {
          return tarn_submit_save(lanes_[choice].session, plan_.session.c_str(), request);
        },
        choice, &Answer::saved);
  }
  call(
      [this, choice](tarn_engine*, void* request) {
        return tarn_submit_destroy(lanes_[choice].session, request);
      },
      choice, &Answer::closed);
}

void Answer::saved(u32, const tarn_event& reply) {
  if (reply.status != TARN_OK && !failure_) failure_ = refusal(reply);
}

void Answer::closed(u32 choice, const tarn_event&) {
  Lane& lane = lanes_[choice];
  all_.owners_.erase(lane.session);
  lane.session = nullptr;
  lane.stage = Stage::closed;
  check_end();
}

void Answer::check_end() {
  const bool is_open =
      std::ranges::any_of(lanes_, [](const Lane& lane) { return lane.stage != Stage::closed; });
  if (n_pending_ > 0 || is_open) return;
  Answers& all = all_;
  if (!plan_.session.empty()) all.kept_names_.erase({plan_.tenant, plan_.session});
  if (sink_ != nullptr) {
    const std::unique_ptr<AnswerSink> sink = std::move(sink_);
    // Told here, or the conversation would go on without this answer, in silence.
    failure_ ? sink->failed(*failure_) : sink->finished(summary_);
  }
  all.answers_.erase(this);  // which is gone from here on
  if (all.answers_.empty() && all.on_idle) all.on_idle();
}

Answer* Answers::start(AnswerPlan plan, std::unique_ptr<AnswerSink> sink) {
  if (!plan.session.empty() && !kept_names_.insert({plan.tenant, plan.session}).second) {
    sink->failed({.status = 409,
                  .type = "invalid_request_error",
                  .message = "another request uses this session: wait for its end",
                  .param = "tarn.session"});
    return nullptr;
  }
  auto owned = std::make_unique<Answer>(*this, std::move(plan), std::move(sink));
  Answer* const answer = owned.get();
  answers_.emplace(answer, std::move(owned));
  answer->start();
  return answer;
}

void Answers::on_event(const tarn_event& event) {
  const auto found = owners_.find(event.session);
  if (found != owners_.end()) found->second.answer->on_event(found->second.choice, event);
}

void Answers::fail_all(const HttpError& error) {
  std::vector<Answer*> all;
  for (const auto& [answer, owned] : answers_) all.push_back(answer);
  for (Answer* const answer : all) {
    if (answers_.contains(answer)) answer->fail(error);
  }
}

}  // namespace tarn::daemon
