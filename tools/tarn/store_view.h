// What a store's file holds, in words and as JSON; and what `tarn store` and `tarn sessions` share.
#pragma once

#include <string>
#include <vector>

#include "tools/support/engine_options.h"
#include "tools/support/json.h"
#include "tools/tarn/session_folder.h"

namespace tarn::tools {

// The command line of both commands.
struct StoreCommand {
  EngineOptions engine;  // the folder, and what an import is checked against
  std::vector<std::string> names;
  std::string name, file, as;
  bool json = false, removes = false;
};

struct SessionRow {
  std::string name{}, model{}, kv_type{}, state{}, saved_at{};
  u64 n_tokens = 0, n_kept = 0, bytes = 0, generation = 0, revision = 0, saved_at_s = 0;
  u64 leaves_after_bytes = 0;       // of new records, about; then its first record is evicted
  std::vector<store::Key> pages{};  // their keys
};

// How the file's space is used. The sum is the file, but for its labels.
struct SpaceUse {
  u64 sessions = 0;  // manifests, and the KV that they name
  u64 nameless = 0;  // KV that no session names: found by its tokens
  u64 indexes = 0;
  u64 free = 0;
  std::string next_to_leave{};  // in words; "": nothing is evicted before the file is full
  u64 total() const { return sessions + nameless + indexes + free; }
};

struct StoreView {
  std::vector<SessionRow> rows;  // the last saved one first
  SpaceUse space;
};
// Of an open store.
StoreView view_of(SessionFolder& folder);

void print_sessions(const std::vector<SessionRow>& rows);
void write_sessions(const std::vector<SessionRow>& rows, Json& json);

// Checks the folder. Only an import may create it.
void check_folder(const StoreCommand& command, bool must_be_there);
// Opens the file with sessions. Without one, every name is "not found".
void open_for(SessionFolder& folder, const StoreCommand& command, const std::string& name);
void remove_session(const StoreCommand& command);
// Takes an exported session or a pack into the folder; by an engine, if a model was named.
void import_file(const StoreCommand& command);
// Adds the options of an import, without its FILE.
void add_import_options(const Command& command, StoreCommand& fields);

}  // namespace tarn::tools
