// A named session that outlives the program: restored, checkpointed while it works, and saved at
// the end. SIGINT and SIGTERM request that end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/api/tarn_store.h"
#include "runtime/config/config.h"
#include "tools/support/json.h"
#include "tools/tarn/generation.h"

namespace tarn::tools {

// Sets the configuration's keys for kept sessions. Throws Failure without a folder.
void keep_sessions(Config& config);
// Whether the store's folder has a file with kept sessions.
bool has_kept_sessions(const Config& config);

// The name of a kept conversation.
struct SessionOptions {
  std::string name;         // empty: not kept
  bool must_exist = false;  // refuses to begin a new session
  bool is_cache = false;    // the text is kept elsewhere: one that cannot be restored begins anew
  bool is_kept() const { return !name.empty(); }
};

class KeptSession {
 public:
  // Restores the session or begins it, and reports which on standard error. Throws Failure, also if
  // it must exist and does not. `folder`: of the store.
  KeptSession(tarn_engine* engine, const SessionOptions& options, const std::string& folder);
  const ApiSession& api() const { return *session_; }
  u64 n_tokens() const { return restored_.n_tokens; }  // restored tokens
  u64 n_computed() const { return restored_.n_computed; }

  // Returns whether this input was read, or answered, by a run that did not end in order; then the
  // session is set up as if the input had just been fed.
  bool goes_on_with(const std::vector<u32>& input);
  // Marks where this run's input begins, before it is fed (input_mark.h).
  void begin_input(bool goes_on);
  // Whether the session holds exactly this text, computed or not. Throws Failure if it holds
  // another text.
  bool has_read(const std::vector<u32>& ids) const;
  // Saves the whole session to disk.
  void save();
  // Writes the key `session`: the state found under the name, and the tokens kept by save().
  void write(Json& json) const;

 private:
  std::string name_, folder_;
  std::unique_ptr<ApiSession> session_;
  tarn_restored restored_ = TARN_INIT(tarn_restored);
  const char* state_ = "new";
  u64 n_kept_ = 0;
};

// Whether SIGINT or SIGTERM came since the first KeptSession began; and throws Stopped if so.
bool asked_to_end();
[[noreturn]] void end_as_asked();

}  // namespace tarn::tools
