#include "tools/tarnd/completion_reply.h"

#include <algorithm>
#include <ctime>
#include <set>

#include "runtime/text/unicode.h"
#include "tools/support/escaped.h"
#include "tools/support/explanation.h"
#include "tools/tarnd/engine_port.h"

namespace tarn::daemon {
namespace {

using tools::JsonLine;

constexpr u64 kReplacementBytes = 3;  // of U+FFFD

const char* finish_reason(int32_t finish) {
  return finish == TARN_FINISH_LENGTH || finish == TARN_FINISH_DEADLINE ? "length" : "stop";
}

f64 ms_of(u64 ns) { return static_cast<f64>(ns) / 1e6; }

u64 n_points(std::string_view utf8) {
  return static_cast<u64>(
      std::ranges::count_if(utf8, [](char c) { return (static_cast<u8>(c) & 0xc0) != 0x80; }));
}

// Whether a character begins with these bytes, and has more.
bool is_begin(const std::string& bytes) {
  const u64 n = text::utf8_bytes_by_lead(bytes[0]);
  const auto lead = static_cast<u8>(bytes[0]);
  if (bytes.size() == 1) return lead >= 0xc2 && lead <= 0xf4;
  return bytes.size() < n && text::is_utf8((bytes + "\x80\x80").substr(0, n));
}

bool goes_on(const std::string& begun, char byte) {
  const std::string both = begun + byte;
  return is_begin(both) || text::is_utf8(both);
}

// The begin of a character at the end of the bytes, or "".
std::string begun_in(const std::string& bytes) {
  for (size_t n = std::min<size_t>(bytes.size(), 3); n > 0; --n) {
    std::string tail = bytes.substr(bytes.size() - n);
    if (is_begin(tail)) return tail;
  }
  return "";
}

f64 ratio(f64 a, f64 b) { return b > 0 ? a / b : 0; }

}  // namespace

CompletionReply::CompletionReply(std::shared_ptr<Exchange> exchange, ReplyForm form, u32 n_choices)
    : exchange_(std::move(exchange)),
      form_(std::move(form)),
      choices_(n_choices),
      id_((form_.is_chat ? "chatcmpl-" : "cmpl-") + exchange_->request.id),
      created_s_(static_cast<u64>(std::time(nullptr))) {}

void CompletionReply::begun(const AnswerSummary& summary) {
  note(summary);
  if (!form_.streams) return;
  exchange_->begin_stream();
  if (!form_.is_chat) return;
  for (u32 i = 0; i < choices_.size(); ++i) {
    JsonLine json;
    begin_object(json);
    json.key("choices").begin_array().begin_object().key("index").number(i);
    json.key("delta").begin_object().key("role").text("assistant").key("content").text("");
    json.end_object().key("logprobs").null().key("finish_reason").null();
    json.end_object().end_array().end_object();
    exchange_->send(json.str());
  }
}

// For the log.
void CompletionReply::note(const AnswerSummary& summary) {
  Work& work = exchange_->work;
  work.n_prompt_tokens = summary.n_prompt_tokens;
  work.n_cached_tokens = summary.n_from_memory + summary.n_from_disk;
}

void CompletionReply::token(u32 choice, const tarn_event& event) {
  Work& work = exchange_->work;
  if (work.n_generated++ == 0) work.first_token_ns = exchange_->age_ns();
  Choice& to = choices_[choice];
  u64 begin = to.n_token_bytes;
  to.n_token_bytes += event.text_bytes;
  if (!form_.has_logprobs || tarn_is_end(form_.engine, event.token) != 0) return;
  const std::string bytes = piece(event.token);
  const bool is_shown = event.text_bytes > 0 || !begun_in(to.begun + bytes).empty();
  if (is_shown && !bytes.empty()) {
    // The bytes that had begun never become a character: this token brings their U+FFFD first.
    if (!to.begun.empty() && !goes_on(to.begun, bytes[0])) begin += kReplacementBytes;
    to.begun = begun_in(to.begun + bytes);
  }
  to.logprobs.push_back({.token = event.token,
                         .logprob = event.logprob,
                         .top = {event.top, event.top + event.n_top},
                         .begin = begin,
                         .end = to.n_token_bytes});
}

void CompletionReply::text(u32 choice, std::string_view text) {
  Choice& to = choices_[choice];
  const u64 n_before = to.n_text_bytes;
  to.n_text_bytes += text.size();
  const auto ends_before = [](const Logprob& each, u64 at) { return each.begin < at; };
  const auto first =
      std::lower_bound(to.logprobs.begin(), to.logprobs.end(), n_before, ends_before);
  for (auto at = first; at != to.logprobs.end() && at->begin < to.n_text_bytes; ++at) {
    Logprob& each = *at;
    each.n_before = to.n_text_points + n_points(text.substr(0, each.begin - n_before));
  }
  to.n_text_points += n_points(text);
  if (form_.streams) return send_piece(choice, text, nullptr, nullptr);
  to.text += text;
}

void CompletionReply::done(u32 choice, int32_t finish, const AnswerSummary& summary, bool is_last) {
  Choice& to = choices_[choice];
  to.finish = finish;
  const auto is_behind = [&](const Logprob& each) { return each.begin >= to.n_text_bytes; };
  if (finish == TARN_FINISH_STOP) std::erase_if(to.logprobs, is_behind);  // the stop's
  for (Logprob& each : to.logprobs) {
    if (is_behind(each)) each.n_before = to.n_text_points;
  }
  note(summary);
  if (!form_.streams) return;
  send_piece(choice, "", finish_reason(finish),
             is_last && !form_.includes_usage ? &summary : nullptr);
}

void CompletionReply::finished(const AnswerSummary& summary) {
  if (!form_.streams) return write_whole(summary);
  if (form_.includes_usage) {
    JsonLine json;
    begin_object(json);
    json.key("choices").begin_array().end_array();
    write_end(json, summary);
    json.end_object();
    exchange_->send(json.str());
  }
  exchange_->send("[DONE]");
  exchange_->end_stream();
}

void CompletionReply::failed(const HttpError& error) { exchange_->fail(error); }

void CompletionReply::begin_object(JsonLine& json) const {
  const char* const object = !form_.is_chat  ? "text_completion"
                             : form_.streams ? "chat.completion.chunk"
                                             : "chat.completion";
  json.begin_object().key("id").text(id_).key("object").text(object);
  json.key("created").number(created_s_).key("model").text(form_.model);
  json.key("system_fingerprint").text("tarn-" TARN_VERSION);
}

void CompletionReply::send_piece(u32 choice, std::string_view text, const char* finish,
                                 const AnswerSummary* summary) {
  JsonLine json;
  begin_object(json);
  json.key("choices").begin_array();
  std::vector<Logprob>& logprobs = choices_[choice].logprobs;
  const u64 n_sent = choices_[choice].n_text_bytes;
  // One without text comes when the text goes on behind it.
  const auto waits = [&](const Logprob& each) { return each.end > n_sent || each.begin >= n_sent; };
  const auto first = finish == nullptr ? std::ranges::find_if(logprobs, waits) : logprobs.end();
  write_choice(json, choice, text, finish, static_cast<u64>(first - logprobs.begin()));
  logprobs.erase(logprobs.begin(), first);
  json.end_array();
  if (summary != nullptr) write_end(json, *summary);
  json.end_object();
  exchange_->send(json.str());
}

void CompletionReply::write_choice(JsonLine& json, u32 choice, std::string_view text,
                                   const char* finish, u64 n_logprobs) {
  json.begin_object().key("index").number(choice);
  if (!form_.is_chat) {
    json.key("text").text(text);
  } else if (form_.streams) {
    json.key("delta").begin_object();
    if (!text.empty()) json.key("content").text(text);
    json.end_object();
  } else {
    json.key("message").begin_object().key("role").text("assistant").key("content").text(text);
    json.end_object();
  }
  write_logprobs(json, std::span(choices_[choice].logprobs).first(n_logprobs));
  json.key("finish_reason");
  finish == nullptr ? json.null() : json.text(finish);
  json.end_object();
}

void CompletionReply::write_whole(const AnswerSummary& summary) {
  JsonLine json;
  begin_object(json);
  json.key("choices").begin_array();
  for (u32 i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    write_choice(json, i, choice.text, finish_reason(choice.finish), choice.logprobs.size());
  }
  json.end_array();
  write_end(json, summary);
  json.end_object();
  exchange_->reply({.body = json.str()});
}

void CompletionReply::write_logprobs(JsonLine& json, std::span<const Logprob> logprobs) const {
  json.key("logprobs");
  if (!form_.has_logprobs || (form_.streams && logprobs.empty())) {
    json.null();
  } else {
    form_.is_chat ? write_chat_logprobs(json, logprobs) : write_text_logprobs(json, logprobs);
  }
}

void CompletionReply::write_chat_logprobs(JsonLine& json, std::span<const Logprob> logprobs) const {
  const auto write = [&](u32 token, f32 logprob) {
    const std::string bytes = piece(token);
    json.begin_object().key("token").text(tools::as_utf8(bytes)).key("logprob").real(logprob);
    json.key("bytes").bytes(bytes);
  };
  json.begin_object().key("content").begin_array();
  for (const Logprob& each : logprobs) {
    write(each.token, each.logprob);
    json.key("top_logprobs").begin_array();
    for (const tarn_logprob& other : each.top) {
      write(other.token, other.logprob);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().key("refusal").null().end_object();
}

// The older form: parallel lists.
void CompletionReply::write_text_logprobs(JsonLine& json, std::span<const Logprob> logprobs) const {
  json.begin_object().key("tokens").begin_array();
  for (const Logprob& each : logprobs) json.text(tools::as_utf8(piece(each.token)));
  json.end_array().key("token_logprobs").begin_array();
  for (const Logprob& each : logprobs) json.real(each.logprob);
  json.end_array().key("top_logprobs").begin_array();
  for (const Logprob& each : logprobs) {
    json.begin_object();
    std::set<std::string> keys;  // several ids may have one text, as U+FFFD: the best one stays
    for (const tarn_logprob& other : each.top) {
      const std::string text = tools::as_utf8(piece(other.token));
      if (keys.insert(text).second) json.key(text).real(other.logprob);
    }
    json.end_object();
  }
  json.end_array().key("text_offset").begin_array();
  for (const Logprob& each : logprobs) json.number(each.n_before);
  json.end_array().end_object();
}

void CompletionReply::write_end(JsonLine& json, const AnswerSummary& summary) const {
  if (!form_.streams || form_.includes_usage) write_usage(json, summary);
  const u64 n_cached = summary.n_from_memory + summary.n_from_disk;
  const u64 n_read = summary.n_prompt_tokens - std::min(n_cached, summary.n_prompt_tokens);
  const f64 prompt_ms = ms_of(summary.prefill_ns), answer_ms = ms_of(summary.decode_ns);
  const auto n_prompt = static_cast<f64>(n_read), n_answer = static_cast<f64>(summary.n_generated);
  json.key("timings").begin_object().key("cache_n").number(n_cached);
  json.key("prompt_n").number(n_read).key("prompt_ms").real(prompt_ms);
  json.key("prompt_per_token_ms").real(ratio(prompt_ms, n_prompt));
  json.key("prompt_per_second").real(ratio(n_prompt * 1e3, prompt_ms));
  json.key("predicted_n").number(summary.n_generated).key("predicted_ms").real(answer_ms);
  json.key("predicted_per_token_ms").real(ratio(answer_ms, n_answer));
  json.key("predicted_per_second").real(ratio(n_answer * 1e3, answer_ms)).end_object();
  json.key("tarn").begin_object();
  json.key("session");
  form_.session.empty() ? json.null() : json.text(form_.session);
  json.key("select").text(form_.select).key("tenant").text(form_.tenant);
  json.key("reused").begin_object().key("tokens").number(n_cached);
  json.key("from_memory").number(summary.n_from_memory);
  json.key("from_disk").number(summary.n_from_disk);
  json.key("placed").number(summary.n_placed).end_object();
  json.key("recomputed").number(summary.n_recomputed);
  json.key("control").begin_object();
  tools::write_explanation(summary.explanation, json);
  json.end_object();
  const bool selects = summary.n_select_steps > 0 && summary.kv_read_ratio < 1;
  json.key("approximate").boolean(selects || summary.n_placed > 0);
  json.end_object();
}

void CompletionReply::write_usage(JsonLine& json, const AnswerSummary& summary) const {
  const u64 n_cached = summary.n_from_memory + summary.n_from_disk;
  json.key("usage").begin_object().key("prompt_tokens").number(summary.n_prompt_tokens);
  json.key("completion_tokens").number(summary.n_generated);
  json.key("total_tokens").number(summary.n_prompt_tokens + summary.n_generated);
  json.key("prompt_tokens_details").begin_object().key("cached_tokens").number(n_cached);
  json.end_object().end_object();
}

std::string CompletionReply::piece(u32 token) const {
  return piece_of(form_.engine, token).value_or("");
}

}  // namespace tarn::daemon
