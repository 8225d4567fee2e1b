// tarn store: shows what the store of a folder holds, verifies it, and moves several sessions in
// one file; all without a model.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/client/daemon_client.h"
#include "tools/support/count.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/model_name.h"
#include "tools/support/progress.h"
#include "tools/support/utc.h"
#include "tools/tarn/commands.h"
#include "tools/tarn/store_view.h"

namespace tarn::tools {
namespace {

constexpr const char* kFiles[] = {kSessionsFile, kSpillFile};

// ---- ls ---------------------------------------------------------------------------------------

void write_space(const char* file, const SpaceUse& space, Json& json) {
  json.begin_object();
  json.key("file").text(file);
  json.key("bytes").number(space.total());
  json.key("sessions_bytes").number(space.sessions);
  json.key("nameless_bytes").number(space.nameless);
  json.key("indexes_bytes").number(space.indexes);
  json.key("free_bytes").number(space.free);
  json.key("evicted_next").text(space.evicted_next);
  json.end_object();
}

void print_space(const char* file, const SpaceUse& space) {
  std::printf("%s, %s: sessions %s, KV that no session names %s, indexes %s, free %s\n", file,
              format_bytes(space.total()).c_str(), format_bytes(space.sessions).c_str(),
              format_bytes(space.nameless).c_str(), format_bytes(space.indexes).c_str(),
              format_bytes(space.free).c_str());
  if (space.evicted_next.empty()) return;
  std::printf("  when it is full, %s is evicted first\n", escaped(space.evicted_next).c_str());
}

void list_store(const StoreCommand& command) {
  std::vector<std::pair<const char*, StoreView>> views;
  for (const char* file : kFiles) {
    SessionFolder folder(command.engine.store_dir, file);
    if (folder.open(SessionFolder::Use::reads))
      views.push_back({file, view_of(folder, command.tenant)});
  }
  std::vector<SessionRow> rows;
  for (const auto& [file, view] : views)
    rows.insert(rows.end(), view.rows.begin(), view.rows.end());
  if (command.json) {
    Json json;
    json.begin_object();
    write_sessions(rows, json);
    json.key("files").begin_array();
    for (const auto& [file, view] : views) write_space(file, view.space, json);
    json.end_array().end_object();
    return print_json(json);
  }
  if (views.empty()) {
    std::printf("nothing is stored in %s\n", command.engine.store_dir.c_str());
    return;
  }
  if (!rows.empty()) print_sessions(rows);
  if (rows.empty()) std::printf("no sessions in %s\n", command.engine.store_dir.c_str());
  for (const auto& [file, view] : views) print_space(file, view.space);
  if (rows.empty()) return;
  std::printf(
      "  evicted after: new data until this session loses its first KV, about. Without an engine "
      "the order is that of writing: the order of use is not on disk.\n");
}

// ---- check ------------------------------------------------------------------------------------

const char* name_of(store::Kind kind) {
  constexpr const char* kNames[] = {"KV group", "extent", "manifest of a session", "codebook"};
  return kNames[static_cast<u32>(kind) - 1];
}

// The findings of one file's check.
struct Found {
  std::string file{};
  struct Record {
    reuse::Damage damage{};
    std::string why;
  };
  std::vector<Record> damages{};
  reuse::CheckDone done{};
  u64 n_heads = 0;  // that are damaged or unreadable: of records that are not known
  f64 seconds = 0;
  std::vector<std::string> sessions{};  // that have lost KV by it
};

// Sessions whose KV is among what was damaged. Those whose manifest was are not known by name.
void find_sessions(SessionFolder& folder, Found& found) {
  struct Search {
    const store::Secret& secret;
    Found& found;
    std::set<std::pair<u64, u64>> keys{};  // of the damaged records
  } search{folder.store().secret(), found};
  for (const Found::Record& record : found.damages) {
    search.keys.insert({record.damage.key.low, record.damage.key.high});
  }
  folder.copy().list(
      [](void* context, const reuse::KeptSession& session) {
        auto& all = *static_cast<Search*>(context);
        const reuse::Manifest& manifest = session.manifest;
        const u32 n_layers = manifest.identity.n_cache_layers;
        for (u64 group = 0; group < u64{session.n_pages} * n_layers; ++group) {
          const auto [page, layer] = reuse::place_of(group, n_layers);
          const store::Key key =
              store::layer_key(all.secret, reuse::page_key(manifest, page), layer);
          if (all.keys.count({key.low, key.high}) == 0) continue;
          all.found.sessions.push_back(std::string(manifest.name));
          return;
        }
      },
      &search);
}

u64 bytes_of_records(const store::Store& store) {
  u64 n_bytes = 0;
  reuse::each_record(store, [&](store::RecordRef, const store::IndexEntry& entry) {
    n_bytes += store::RecordShape{entry.payload_bytes, entry.n_tokens}.record_bytes();
  });
  return n_bytes;
}

Found check_one(SessionFolder& folder, const char* file, bool removes) {
  Found found{.file = file};
  const store::StoreStats stats = folder.store().stats();
  found.n_heads = u64{stats.n_damaged_at_start} + stats.n_unread_at_start;
  SystemClock clock;
  const u64 begin_ns = clock.now_ns();
  folder.on_wait([&folder, n_bytes = bytes_of_records(folder.store()),
                  progress = std::make_shared<Progress>()] {
    progress->show_bytes("verifying", folder.store().stats().bytes_read, n_bytes);
  });
  found.done = value_of(folder.copy().check(
      {.removes = removes,
       .on_damage =
           [](void* context, const reuse::Damage& damage) {
             static_cast<Found*>(context)->damages.push_back({damage, damage.why});
           },
       .context = &found}));
  folder.on_wait({});
  found.seconds = seconds_of(clock.now_ns() - begin_ns);
  if (!found.damages.empty()) find_sessions(folder, found);
  return found;
}

void write_found(const Found& found, Json& json) {
  json.begin_object();
  json.key("file").text(found.file);
  json.key("records").number(found.done.n_records);
  json.key("bytes").number(found.done.n_bytes);
  json.key("seconds").real(found.seconds);
  json.key("damaged").number(found.done.n_damaged + found.n_heads);
  json.key("removed").number(found.done.n_removed);
  json.key("sessions").begin_array();
  for (const std::string& name : found.sessions) json.text(name);
  json.end_array().end_object();
}

void print_found(const Found& found) {
  for (const auto& [damage, why] : found.damages) {
    std::printf("%s: %s in frame %u, %s: %s\n", found.file.c_str(), name_of(damage.kind),
                damage.frame_idx, format_bytes(damage.n_bytes).c_str(), why.c_str());
  }
  if (found.n_heads > 0) {
    std::printf("%s: damaged or unreadable heads, whose records are lost: %llu\n",
                found.file.c_str(), count(found.n_heads));
  }
  for (const std::string& name : found.sessions) {
    std::printf("%s: session %s has lost KV, and recomputes it\n", found.file.c_str(),
                escaped(name).c_str());
  }
  const f64 mb_per_s = static_cast<f64>(found.done.n_bytes) * 1e-6 / std::max(found.seconds, 1e-9);
  std::printf("%s: %llu records, %s verified in %.2f s (%.0f MB/s): %s\n", found.file.c_str(),
              count(found.done.n_records), format_bytes(found.done.n_bytes).c_str(), found.seconds,
              mb_per_s, found.done.n_damaged + found.n_heads > 0 ? "damaged" : "no damage");
}

void check(const StoreCommand& command) {
  u64 n_damaged = 0, n_left = 0;
  Json json;
  json.begin_object().key("files").begin_array();
  for (const char* file : kFiles) {
    SessionFolder folder(command.engine.store_dir, file);
    using Use = SessionFolder::Use;
    if (!folder.open(command.removes ? Use::clears : Use::reads)) continue;
    const Found found = check_one(folder, file, command.removes);
    command.json ? write_found(found, json) : print_found(found);
    n_damaged += found.done.n_damaged + found.n_heads;
    n_left += command.removes ? found.done.n_damaged - found.done.n_removed
                              : found.done.n_damaged + found.n_heads;
  }
  json.end_array().end_object();
  if (command.json) print_json(json);
  if (n_left > 0) {
    const char* remedy = command.removes
                             ? ", which could not be removed: check the disk (dmesg)"
                             : "; tarn store check --remove drops them, and sessions recompute "
                               "what they have lost";
    throw Failure{kExitIo, command.engine.store_dir +
                               ": damaged records: " + std::to_string(n_left) + remedy};
  }
  if (n_damaged > 0) std::fprintf(stderr, "removed damaged records: %llu\n", count(n_damaged));
}

// ---- pack -------------------------------------------------------------------------------------

void pack(const StoreCommand& command) {
  SessionFolder folder(command.engine.store_dir);
  open_for(folder, command, SessionFolder::Use::reads);
  const std::vector<SessionRow> rows = asked_sessions(folder, command);
  std::vector<const char*> names;
  std::vector<store::Key> tenants;
  for (const SessionRow& row : rows) {
    names.push_back(row.name.c_str());
    tenants.push_back(row.tenant_key);
  }
  if (rows.empty()) {
    throw Failure{kExitRefused,
                  "the store has no sessions to pack: save one first (tarn run --session NAME)"};
  }
  u64 n_bytes = 0;  // at most: what sessions share is read once
  for (const SessionRow& row : rows) n_bytes += row.bytes;
  folder.on_wait([&folder, n_bytes, before = folder.store().stats().bytes_read,
                  progress = std::make_shared<Progress>()] {
    progress->show_bytes("packing", folder.store().stats().bytes_read - before, n_bytes);
  });
  const reuse::ExportDone done = value_of(
      folder.copy().pack({.path = command.file.c_str(), .names = names, .tenants = tenants}));
  folder.on_wait({});
  std::fprintf(stderr, "sessions: %u, %llu tokens, %llu with their KV, %s in %s\n", done.n_sessions,
               count(done.n_tokens), count(done.n_slots), format_bytes(done.file_bytes).c_str(),
               command.file.c_str());
}

// ---- Of a running tarnd -----------------------------------------------------------------------

void print_stored(const rapidjson::Value& row) {
  const u64 saved_at_s = count_of(row, "saved_at");
  std::printf("%-32s %10llu tokens, %llu with their KV, %s, saved %s\n",
              escaped(text_of(row, "name")).c_str(), count(count_of(row, "tokens")),
              count(count_of(row, "kept_tokens")), format_bytes(count_of(row, "bytes")).c_str(),
              saved_at_s == 0 ? "at an unknown time" : utc_at(saved_at_s).c_str());
}

void list_by_daemon(const DaemonClient& daemon, bool json) {
  const std::string reply = daemon.text("GET", "/v1/tarn/store");
  if (json) return print_reply(reply);
  const rapidjson::Document list = parsed_reply(reply);
  const rapidjson::Value& rows = member(list, "data");
  if (!rows.IsArray() || rows.Empty()) {
    std::printf("tarnd keeps no sessions of yours\n");
    return;
  }
  for (const rapidjson::Value& row : rows.GetArray()) print_stored(row);
}

constexpr const char* kStoreExamples =
    "\nExamples:\n"
    "  tarn store --store ~/tarn\n"
    "  tarn store --socket unix:///run/tarn/tarn.sock\n"
    "  tarn store check --store ~/tarn\n"
    "  tarn store pack manual faq -o docs.pack --store ~/tarn\n"
    "  tarn store pack -o uid0.pack --tenant uid:0 --store ~/tarn\n"
    "  tarn store unpack docs.pack --store ~/other -m model.gguf\n"
    "  tarn store rm faq --store ~/tarn\n"
    "\nA pack is one file with sessions, their tokens and their KV: texts that were read once go "
    "to "
    "other machines. KV computed on any CPU suits every CPU, but no GPU. Unpack only from sources "
    "that you trust like the folder itself: checksums find damage, not forgery.\n";

struct Verbs {
  Command rm, check, pack, unpack;
};

// Asks a running tarnd, which does the rest itself.
void ask_daemon(const StoreCommand& command, const DaemonClient& daemon, const Verbs& verbs) {
  const bool is_other = verbs.check.parsed() || verbs.pack.parsed() || verbs.unpack.parsed();
  if (!command.engine.store_dir.empty() || is_other || command.tenant || command.all) {
    throw Failure{kExitUsage,
                  "--socket is for ls and rm NAME, without --store and --tenant: a running tarnd "
                  "has its store to itself, so stop it for the others"};
  }
  if (!verbs.rm.parsed()) return list_by_daemon(daemon, command.json);
  for (const std::string& name : command.names)
    daemon.text("DELETE", "/v1/tarn/store/" + url_escaped(name));
}

void run(StoreCommand& command, const DaemonClient& daemon, const Verbs& verbs) {
  if (verbs.rm.parsed() && command.names.empty() != command.all) {
    throw Failure{kExitUsage, "rm deletes the sessions that it names, or --all: give one of both"};
  }
  if (daemon.is_named()) return ask_daemon(command, daemon, verbs);
  if (command.engine.store_dir.empty()) {
    throw Failure{kExitUsage,
                  "which store? Give --store DIR, or --socket for that of a running tarnd"};
  }
  verbs.unpack.parsed() ? check_store_folder(command.engine.store_dir) : check_folder(command);
  if (verbs.rm.parsed()) return remove_sessions(command);
  if (verbs.check.parsed()) return check(command);
  if (verbs.pack.parsed()) return pack(command);
  if (verbs.unpack.parsed()) {
    command.engine.model = model_file(command.engine.model);
    return import_file(command);
  }
  list_store(command);
}

}  // namespace

void add_store(const Command& app) {
  auto command = std::make_shared<StoreCommand>();
  const Command sub =
      app.add_subcommand("store", "show, verify, pack and unpack what a folder keeps");
  sub.footer(kStoreExamples);
  sub.fallthrough();
  sub.require_subcommand(0, 1);
  sub.add_option("--store", command->engine.store_dir, "the folder of tarn run --store")
      .check(is_not_empty);
  auto daemon = std::make_shared<DaemonClient>();
  daemon->add_to(sub);
  sub.add_option("--tenant", command->tenant,
                 "the sessions of this tenant alone; of unpack: whose they are then. Without it "
                 "those of all, and each keeps its own. \"\": the default tenant");
  sub.add_flag("--json", command->json, "of ls and check: one JSON object on standard output");

  sub.add_subcommand("ls", "list the sessions, and how the space is used (the default)");
  const Verbs verbs{
      .rm = sub.add_subcommand("rm", "delete sessions, and KV that no other one shares"),
      .check = sub.add_subcommand(
          "check", "read and verify every byte; exit code 74 if something is damaged"),
      .pack = sub.add_subcommand(
          "pack",
          "write sessions to one file, which appears when it is whole; KV that one shares with "
          "the one named before it is written once"),
      .unpack = sub.add_subcommand(
          "unpack",
          "add the sessions of a pack; every byte is checked before anything is written, and "
          "those that are there already are skipped, so a repeat goes on")};
  verbs.rm.add_option("NAME", command->names, "the sessions'");
  verbs.rm.add_flag("--all", command->all, "all sessions, or all of --tenant");
  verbs.check.add_flag("--remove", command->removes, "remove what is damaged");
  verbs.pack.add_option("NAME", command->names, "the sessions' (default: all)");
  verbs.pack.add_option("-o,--output", command->file, "the file; an existing one is replaced")
      .required();
  verbs.unpack.add_option("FILE", command->file, "the pack").required();
  add_import_options(verbs.unpack, *command);
  sub.callback([command, daemon, verbs] { run(*command, *daemon, verbs); });
}

}  // namespace tarn::tools
