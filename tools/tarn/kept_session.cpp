#include "tools/tarn/kept_session.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "tools/support/count.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/shown_answer.h"
#include "tools/tarn/input_mark.h"

namespace tarn::tools {
namespace {

volatile std::sig_atomic_t g_asked_to_end = 0;

// A second signal ends the program as usual; the last checkpoint stays.
void catch_signals() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { g_asked_to_end = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

bool asked_to_end() { return g_asked_to_end != 0; }

void end_as_asked() { throw Stopped{g_asked_to_end}; }

void keep_sessions(Config& config) {
  if (config.store.is_off()) {
    throw Failure{kExitUsage,
                  "--session keeps the conversation in a folder: name one with --store DIR"};
  }
  config.store.sessions = true;
}

bool has_kept_sessions(const Config& config) {
  std::error_code unknown;  // opening the store reports it
  return !config.store.is_off() &&
         std::filesystem::exists(std::filesystem::path(config.store.path.data()) / kSessionsFile,
                                 unknown);
}

KeptSession::KeptSession(tarn_engine* engine, const SessionOptions& options,
                         const std::string& folder)
    : name_(options.name), folder_(folder) {
  const std::string& name = options.name;
  tarn_session* session = nullptr;
  int32_t status = tarn_session_restore(engine, nullptr, name.c_str(), &session, &restored_);
  if (options.is_cache && status != TARN_OK && status != TARN_NOT_FOUND) {
    std::fprintf(stderr, "tarn warning: session %s is computed anew from its messages: %s\n",
                 escaped(name).c_str(), tarn_error_text());
    status = TARN_NOT_FOUND;
  }
  if (status != TARN_NOT_FOUND) check_api(status);
  if (status == TARN_NOT_FOUND && options.must_exist) {
    throw Failure{kExitRefused, "the store has no session " + escaped(name) +
                                    ", and --session-must-exist was given: tarn store lists the "
                                    "existing ones; without that flag a new session begins"};
  }
  if (status == TARN_NOT_FOUND) check_api(tarn_session_create(engine, nullptr, &session));
  session_ = std::make_unique<ApiSession>(session);
  catch_signals();
  if (status == TARN_NOT_FOUND) {
    check_api(tarn_session_keep(session, name.c_str()));
    std::fprintf(stderr, "session %s: new\n", escaped(name).c_str());
    return;
  }
  const u64 n_lost = restored_.n_tokens - std::min(restored_.n_tokens, restored_.n_computed + 1);
  state_ = restored_.cut_off != 0 ? "cut_off" : n_lost > 0 ? "repaired" : "continued";
  std::fprintf(stderr, "session %s: %llu tokens restored in %.3f s, %llu to be recomputed%s\n",
               escaped(name).c_str(), count(restored_.n_tokens),
               static_cast<f64>(restored_.took_ns) * 1e-9, count(n_lost),
               restored_.cut_off != 0 ? "; it was cut off" : "");
}

bool KeptSession::goes_on_with(const std::vector<u32>& input) {
  const bool was_left =
      restored_.cut_off != 0 || marked_input(folder_, name_) == restored_.turn_begin;
  if (!was_left || restored_.turn_begin + input.size() > restored_.n_tokens) return false;
  std::vector<u32> turn(input.size());
  u64 n = 0;
  check_api(
      tarn_session_tokens(session_->get(), restored_.turn_begin, turn.data(), turn.size(), &n));
  if (n != input.size() || turn != input) return false;
  check_api(tarn_session_truncate(session_->get(), restored_.turn_begin + input.size()));
  if (restored_.cut_off == 0) {
    std::fprintf(stderr,
                 "session %s: its last run did not end in order; its answer follows again\n",
                 escaped(name_).c_str());
  }
  return true;
}

void KeptSession::begin_input(bool goes_on) {
  mark_input(folder_, name_, goes_on ? restored_.turn_begin : restored_.n_tokens);
}

bool KeptSession::has_read(const std::vector<u32>& ids) const {
  if (restored_.n_tokens == 0) return false;
  std::vector<u32> found(restored_.n_tokens);
  u64 n = 0;
  check_api(tarn_session_tokens(session_->get(), 0, found.data(), found.size(), &n));
  if (found == ids) return true;
  throw Failure{kExitRefused, "the session " + escaped(name_) +
                                  " holds another text: choose another name with --session"};
}

void KeptSession::write(Json& json) const {
  json.key("session").begin_object();
  json.key("name").text(name_);
  json.key("state").text(state_);
  json.key("n_kept").number(n_kept_);
  json.end_object();
}

void KeptSession::save() {
  check_api(tarn_session_save(session_->get(), name_.c_str()));
  tarn_session_info info = TARN_INIT(tarn_session_info);
  check_api(tarn_session_info_get(session_->get(), &info));
  n_kept_ = info.n_tokens;
  std::fprintf(stderr, "%ssession %s: %llu tokens kept%s\n", behind_answer(),
               escaped(name_).c_str(), count(info.n_tokens),
               asked_to_end() ? "; the same command continues from there" : "");
}

}  // namespace tarn::tools
