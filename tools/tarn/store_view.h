// The view of a store's file, in words and as JSON, and what `tarn store` does with its sessions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/support/engine_options.h"
#include "tools/support/json.h"
#include "tools/tarn/session_folder.h"

namespace tarn::tools {

struct StoreCommand {
  EngineOptions engine;  // the folder, and what an import is checked against
  std::vector<std::string> names;
  std::optional<std::string> tenant;  // none: everybody's
  std::string file, as;
  bool json = false, removes = false, all = false;
};

struct SessionRow {
  std::string name{}, tenant{}, model{}, kv_type{}, state{}, saved_at{};
  store::Key tenant_key{};
  u64 n_tokens = 0, n_kept = 0, bytes = 0, generation = 0, revision = 0, saved_at_s = 0;
  u64 evicted_after_bytes = 0;      // of new records, about; then it loses its first one
  std::vector<store::Key> pages{};  // their keys
};

// How the file's space is used. The sum is the file, but for its labels.
struct SpaceUse {
  u64 sessions = 0;  // manifests, and the KV that they name
  u64 nameless = 0;  // KV that no session names: found by its tokens
  u64 indexes = 0;
  u64 free = 0;
  std::string evicted_next{};  // in words; "": nothing is evicted before the file is full
  u64 total() const { return sessions + nameless + indexes + free; }
};

struct StoreView {
  std::vector<SessionRow> rows;  // of the tenant that was asked for; the last saved one first
  SpaceUse space;
};
StoreView view_of(SessionFolder& folder, const std::optional<std::string>& tenant = std::nullopt);

void print_sessions(const std::vector<SessionRow>& rows);
void write_sessions(const std::vector<SessionRow>& rows, Json& json);

// Checks that the folder is there, and its owner's alone unless its media are read-only and so
// no place for secrets.
void check_folder(const StoreCommand& command);
// Opens the file with sessions. Without one, every name is "not found".
void open_for(SessionFolder& folder, const StoreCommand& command, SessionFolder::Use use);
void remove_sessions(const StoreCommand& command);
// Returns the sessions that the command names, or all of its tenant or of everybody, in an order in
// which those with a common beginning follow one another. Throws Failure for a name that no session
// has, or those of several tenants.
std::vector<SessionRow> asked_sessions(SessionFolder& folder, const StoreCommand& command);
// Takes a pack into the folder; by an engine, if a model was named.
void import_file(const StoreCommand& command);
// Adds the options of an import, without its FILE.
void add_import_options(const Command& command, StoreCommand& fields);

}  // namespace tarn::tools
