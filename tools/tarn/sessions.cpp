// tarn sessions: lists a folder's kept sessions, exports one to a file, imports one from a file,
// deletes one; all without a model.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "tools/support/engine_options.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/json.h"
#include "tools/support/utc.h"
#include "tools/tarn/commands.h"
#include "tools/tarn/kept_session.h"
#include "tools/tarn/session_folder.h"

namespace tarn::tools {
namespace {

namespace fs = std::filesystem;

struct SessionsCommand {
  EngineOptions engine;  // for an import that checks the model
  std::string name, file, as;
  bool json = false;
};

unsigned long long count(u64 n) { return n; }

// A line of the list.
struct Row {
  std::string name, model, kv_type, state, saved_at;
  u64 n_tokens = 0, n_kept = 0, bytes = 0, generation = 0, revision = 0;
};

std::string state_of(const reuse::KeptSession& session) {
  const reuse::Manifest& manifest = session.manifest;
  const bool is_read = manifest.n_slots + 1 >= manifest.token_ids.size();
  std::string state = "complete";
  if (!is_read) state = "cut off in a prompt";
  if (is_read && manifest.sampler.is_generating != 0) state = "cut off in an answer";
  if (session.n_pages_there < session.n_pages) state += ", KV evicted in part";
  return state;
}

Row row_of(const reuse::KeptSession& session) {
  const reuse::Manifest& manifest = session.manifest;
  const u32 kv_type = manifest.identity.kv_type;
  char model[20];
  std::snprintf(model, sizeof model, "%016llx", count(manifest.identity.model.low));
  return {.name = std::string(manifest.name),
          .model = model,
          .kv_type = kv_type < std::size(kKvTypeNames) ? kKvTypeNames[kv_type] : "unknown",
          .state = state_of(session),
          .saved_at = manifest.saved_at_s == 0 ? "" : utc_at(manifest.saved_at_s),
          .n_tokens = manifest.token_ids.size(),
          .n_kept = std::min<u64>(u64{session.n_pages_there} * manifest.identity.page_tokens,
                                  manifest.n_slots),
          .bytes = session.record_bytes,
          .generation = session.generation,
          .revision = manifest.revision};
}

std::vector<Row> rows_of(SessionFolder& folder) {
  std::vector<Row> rows;
  if (!folder.open()) return rows;
  folder.copy().list(
      [](void* context, const reuse::KeptSession& session) {
        static_cast<std::vector<Row>*>(context)->push_back(row_of(session));
      },
      &rows);
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return a.generation > b.generation; });
  return rows;
}

void print_as_json(const std::vector<Row>& rows) {
  Json json;
  json.begin_object().key("sessions").begin_array();
  for (const Row& row : rows) {
    json.begin_object();
    json.key("name").text(row.name);
    json.key("tokens").number(row.n_tokens);
    json.key("kv_tokens").number(row.n_kept);
    json.key("bytes").number(row.bytes);
    json.key("model").text(row.model);
    json.key("kv_type").text(row.kv_type);
    json.key("saved_at").text(row.saved_at);
    json.key("revision").number(row.revision);
    json.key("state").text(row.state);
    json.end_object();
  }
  json.end_array().end_object();
  print_json(json);
}

// An import may create the folder; other commands need an existing one.
void check_folder(const SessionsCommand& command, bool must_be_there) {
  const std::string& folder = command.engine.store_dir;
  std::error_code unknown;  // then the check reports it
  if (must_be_there && fs::symlink_status(folder, unknown).type() == fs::file_type::not_found) {
    throw Failure{kExitIo, folder + ": there is no such folder (--store DIR of tarn run)"};
  }
  check_store_folder(folder);
}

void list(const SessionsCommand& command) {
  SessionFolder folder(command.engine.store_dir);
  const std::vector<Row> rows = rows_of(folder);
  if (command.json) return print_as_json(rows);
  if (rows.empty()) {
    std::printf("no sessions in %s\n", command.engine.store_dir.c_str());
    return;
  }
  size_t n_name = 4;
  for (const Row& row : rows) n_name = std::max(n_name, escaped(row.name).size());
  const int width = static_cast<int>(n_name);
  std::printf("%-*s %10s %10s %12s  %-16s %-7s %-20s %s\n", width, "name", "tokens", "with KV",
              "on disk", "model", "KV", "last saved", "state");
  for (const Row& row : rows) {
    std::printf("%-*s %10llu %10llu %12s  %-16s %-7s %-20s %s\n", width, escaped(row.name).c_str(),
                count(row.n_tokens), count(row.n_kept), format_bytes(row.bytes).c_str(),
                row.model.c_str(), row.kv_type.c_str(),
                row.saved_at.empty() ? "-" : row.saved_at.c_str(), row.state.c_str());
  }
}

// In a folder without sessions every name is "not found", too.
void open_for(SessionFolder& folder, const SessionsCommand& command) {
  if (folder.open()) return;
  throw Failure{kExitRefused, "no session " + escaped(command.name) + ": " +
                                  command.engine.store_dir +
                                  " has no sessions (tarn sessions --store DIR lists them)"};
}

void remove(const SessionsCommand& command) {
  SessionFolder folder(command.engine.store_dir);
  open_for(folder, command);
  const reuse::DeleteDone done = value_of(folder.copy().erase(command.name));
  std::fprintf(stderr, "session %s: deleted, %llu records; %llu shared with others stay\n",
               escaped(command.name).c_str(), count(done.n_erased), count(done.n_shared));
}

void export_to_file(const SessionsCommand& command) {
  SessionFolder folder(command.engine.store_dir);
  open_for(folder, command);
  const reuse::ExportDone done = value_of(folder.copy().write(command.name, command.file.c_str()));
  std::fprintf(stderr, "session %s: %llu tokens, %llu with their KV, %s in %s\n",
               escaped(command.name).c_str(), count(done.n_tokens), count(done.n_slots),
               format_bytes(done.file_bytes).c_str(), command.file.c_str());
}

// An engine with the model checks that the session belongs to it.
void import_by_engine(const SessionsCommand& command, SessionFolder& folder, u64 n_tokens) {
  folder.close();
  EngineOptions options = command.engine;
  options.sessions_max = 1;
  options.context_tokens = std::max<u64>(n_tokens, 1);
  Config config = options.config();
  keep_sessions(config);
  const EngineHandle engine(options.model, config, options.verbose);
  check_api(tarn_session_import(engine.get(), command.file.c_str(),
                                command.as.empty() ? nullptr : command.as.c_str()));
}

void import_from_file(const SessionsCommand& command) {
  SessionFolder folder(command.engine.store_dir);
  const auto facts = value_of(folder.copy().look_at(command.file.c_str()));
  const std::string name = command.as.empty() ? std::string(facts.manifest.name) : command.as;
  const u64 n_tokens = facts.manifest.token_ids.size();
  folder.make_room(facts);
  if (command.engine.model.empty()) {
    value_of(folder.copy().read({.path = command.file.c_str(), .name = name}));
  } else {
    import_by_engine(command, folder, n_tokens);
  }
  folder.keep_room();
  std::fprintf(stderr, "session %s: imported, %llu tokens\n", escaped(name).c_str(),
               count(n_tokens));
}

constexpr const char* kExamples =
    "\nExamples:\n"
    "  tarn sessions --store ~/tarn\n"
    "  tarn sessions export book book.session --store ~/tarn\n"
    "  tarn sessions import book.session --store ~/other\n"
    "  tarn sessions import book.session --as novel --store ~/tarn -m model.gguf\n"
    "  tarn sessions delete book --store ~/tarn\n"
    "\nAn exported session is one file with the tokens and their KV; tarn run --session continues "
    "an imported one bit for bit. Import only from sources that you trust like the folder itself: "
    "checksums find damage, not forgery.\n";

}  // namespace

void add_sessions(const Command& app) {
  auto command = std::make_shared<SessionsCommand>();
  const Command sub =
      app.add_subcommand("sessions", "list, export, import and delete a folder's kept sessions");
  sub.footer(kExamples);
  sub.fallthrough();
  sub.require_subcommand(0, 1);
  sub.add_option("--store", command->engine.store_dir, "the folder of tarn run --store")
      .required()
      .check(is_not_empty);
  sub.add_flag("--json", command->json, "the list as one JSON object on standard output");

  sub.add_subcommand("list", "list the sessions (the default)");
  const Command gone = sub.add_subcommand(
      "delete",
      "delete a session, and KV that no other one shares; its bytes stay in the file until they "
      "are written over");
  gone.add_option("NAME", command->name, "the session's").required();
  const Command out =
      sub.add_subcommand("export", "write a session to a file, which appears when it is whole");
  out.add_option("NAME", command->name, "the session's").required();
  out.add_option("FILE", command->file, "the file; an existing one is replaced").required();
  const Command in = sub.add_subcommand(
      "import", "add an exported session; every byte is checked before anything is written");
  in.add_option("FILE", command->file, "the file").required();
  in.add_option("--as", command->as, "a name in place of its own");
  in.add_option("-m,--model", command->engine.model,
                "refuse a session of another model (or --kv-type); without this option tarn run "
                "refuses it later");
  in.add_option("--kv-type", command->engine.kv_type, "number format of K and V (default f16)")
      .is_member(std::vector<std::string>(std::begin(kKvTypeNames), std::end(kKvTypeNames)));
  sub.callback([command, gone, out, in] {
    check_folder(*command, /*must_be_there=*/!in.parsed());
    if (gone.parsed()) return remove(*command);
    if (out.parsed()) return export_to_file(*command);
    if (in.parsed()) return import_from_file(*command);
    list(*command);
  });
}

}  // namespace tarn::tools
