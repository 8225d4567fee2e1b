// tools/tarn/kept_session.h
//
// A session with a name, that outlives the program: restored where it was, with checkpoints while
// it works, and saved at the end. SIGINT and SIGTERM ask for that end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "tools/support/json.h"
#include "tools/tarn/generation.h"

namespace tarn::tools {

// What a configuration needs so that sessions are kept. Throws Failure where there is no folder.
void keep_sessions(Config& config);

// Under which name a conversation is kept.
struct SessionOptions {
  std::string name;         // empty: it is not kept
  bool must_exist = false;  // begun anew it would be another conversation
  bool is_kept() const { return !name.empty(); }
};

class KeptSession {
 public:
  // Takes the session up, or begins it, and says which on standard error. Throws Failure, also
  // where it must exist and does not.
  KeptSession(tarn_engine* engine, const SessionOptions& options);
  const ApiSession& api() const { return *session_; }
  u64 n_tokens() const { return restored_.n_tokens; }  // that were taken up
  u64 n_computed() const { return restored_.n_computed; }

  // True where the session was cut off while it read or answered this very input: then it is as if
  // it had been fed just now.
  bool goes_on_with(const std::vector<u32>& input);
  // True where the session is this text and nothing else, read already or on the way. Throws
  // Failure where it is another one.
  bool has_read(const std::vector<u32>& ids) const;
  // All of it is on disk.
  void save();
  // The key `session`: what was found under the name, and how many tokens save() has kept.
  void write(Json& json) const;

 private:
  std::string name_;
  std::unique_ptr<ApiSession> session_;
  tarn_restored restored_ = TARN_INIT(tarn_restored);
  const char* state_ = "new";
  u64 n_kept_ = 0;
};

// Whether SIGINT or SIGTERM came since the first KeptSession began, and then: throws Stopped.
bool asked_to_end();
[[noreturn]] void end_as_asked();

}  // namespace tarn::tools
