#include "tools/tarn/store_view.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "tools/support/count.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/utc.h"
#include "tools/tarn/kept_session.h"
#include "tools/tarn/message_file.h"

namespace tarn::tools {
namespace {

namespace fs = std::filesystem;

std::string state_of(const reuse::KeptSession& session) {
  const reuse::Manifest& manifest = session.manifest;
  const bool is_read = manifest.n_slots + 1 >= manifest.token_ids.size();
  std::string state = "complete";
  if (!is_read) state = "cut off in a prompt";
  if (is_read && manifest.sampler.is_generating != 0) state = "cut off in an answer";
  if (session.n_pages_there < session.n_pages) state += ", KV evicted in part";
  return state;
}

SessionRow row_of(const reuse::KeptSession& session) {
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
          .revision = manifest.revision,
          .saved_at_s = manifest.saved_at_s};
}

// "3 h"; "-" for a time that is unknown, or to come.
std::string age_of(u64 saved_at_s) {
  const u64 now_s = static_cast<u64>(std::time(nullptr));
  if (saved_at_s == 0 || saved_at_s > now_s) return "-";
  const u64 age_s = now_s - saved_at_s;
  if (age_s < 120) return std::to_string(age_s) + " s";
  if (age_s < 120 * 60) return std::to_string(age_s / 60) + " min";
  if (age_s < 48 * 3600) return std::to_string(age_s / 3600) + " h";
  return std::to_string(age_s / 86400) + " d";
}

// Collects what one look at the file's records tells.
class Viewer {
 public:
  explicit Viewer(const store::Store& store)
      : store_(store),
        index_(store.index()),
        frame_bytes_(store.stats().frame_bytes),
        owners_(index_.n_frames()),
        leaves_after_(index_.n_frames(), 0) {
    // The oldest of two orders of use, of extents and of all others: each begins with the record
    // that has no older one, and goes on to the younger.
    std::array<u32, 2> oldest = {store::kNoFrame, store::kNoFrame};
    for (u32 i = 0; i < index_.n_frames(); ++i) {
      const store::IndexEntry& entry = index_.frame(i);
      const bool may_leave = entry.life == store::Life::published && entry.holds == 0;
      if (may_leave && entry.older == store::kNoFrame) oldest[order_of(entry)] = i;
    }
    u64 n_before = index_.n_free();
    for (const u32 first : oldest) {
      for (u32 i = first; i != store::kNoFrame; i = index_.frame(i).younger) {
        if (first_to_leave_ == store::kNoFrame) first_to_leave_ = i;
        leaves_after_[i] = n_before * frame_bytes_;
        n_before += index_.frame(i).n_frames;
      }
    }
  }

  void add(const reuse::KeptSession& session) {
    SessionRow row = row_of(session);
    const reuse::Manifest& manifest = session.manifest;
    const auto manifest_record =
        store_.find(store::named_key(store_.secret(), manifest.identity.tenant, manifest.name));
    row.leaves_after_bytes = index_.n_frames() * frame_bytes_;
    const auto own = [&](store::RecordRef ref) {
      if (owners_[ref.frame_idx].empty()) owners_[ref.frame_idx] = row.name;
      row.leaves_after_bytes = std::min(row.leaves_after_bytes, leaves_after_[ref.frame_idx]);
    };
    if (manifest_record) own(*manifest_record);
    const u64 n_groups = u64{session.n_pages} * manifest.identity.n_cache_layers;
    for (u64 group = 0; group < n_groups; ++group) {
      if (const auto ref = reuse::group_record(store_, manifest, group)) own(*ref);
    }
    for (u32 page = 0; page < session.n_pages; ++page) {
      row.pages.push_back(reuse::page_key(manifest, page));
    }
    rows_.push_back(std::move(row));
  }

  StoreView done() {
    std::sort(rows_.begin(), rows_.end(),
              [](const SessionRow& a, const SessionRow& b) { return a.generation > b.generation; });
    return {std::move(rows_), space()};
  }

 private:
  SpaceUse space() const {
    SpaceUse use{.free = index_.n_free() * frame_bytes_};
    for (u32 i = 0; i < index_.n_frames(); ++i) {
      const store::IndexEntry& entry = index_.frame(i);
      if (entry.life != store::Life::published) continue;
      u64& kind = is_index(entry)                                              ? use.indexes
                  : entry.kind == store::Kind::manifest || !owners_[i].empty() ? use.sessions
                                                                               : use.nameless;
      kind += entry.n_frames * frame_bytes_;
    }
    const u32 next = first_to_leave_;
    if (next == store::kNoFrame) return use;
    use.next_to_leave = is_index(index_.frame(next)) ? "an index of a session"
                        : owners_[next].empty()      ? "KV that no session names"
                                                     : "session " + escaped(owners_[next]);
    return use;
  }
  static u32 order_of(const store::IndexEntry& entry) {
    return entry.kind == store::Kind::extent ? 0 : 1;
  }
  static bool is_index(const store::IndexEntry& entry) {
    return entry.kind == store::Kind::codebook || entry.kind == store::Kind::extent;
  }

  const store::Store& store_;
  const store::RecordIndex& index_;
  u64 frame_bytes_;
  std::vector<std::string> owners_;  // by frame: the session that names its record
  std::vector<u64> leaves_after_;    // by frame
  u32 first_to_leave_ = store::kNoFrame;
  std::vector<SessionRow> rows_;
};

// An engine with the model checks that the sessions belong to it.
void import_by_engine(const StoreCommand& command, SessionFolder& folder,
                      const SessionFolder::FileFacts& facts, tarn_unpacked& done) {
  folder.close();
  EngineOptions options = command.engine;
  options.sessions_max = 1;
  options.context_tokens = std::max<u64>(facts.n_tokens_max, 1);
  Config config = options.config();
  keep_sessions(config);
  const EngineHandle engine(options, config);
  check_api(tarn_store_unpack(engine.get(), command.file.c_str(),
                              command.as.empty() ? nullptr : command.as.c_str(), &done));
}

void print_imported(const reuse::ImportedSession& session) {
  if (session.was_there && session.n_groups_new == 0) {
    std::fprintf(stderr, "session %s: already there, skipped\n", escaped(session.name).c_str());
    return;
  }
  std::fprintf(stderr, "session %s: %s, %llu tokens, %llu with their KV\n",
               escaped(session.name).c_str(),
               session.was_there ? "already there, missing KV added" : "imported",
               count(session.n_tokens), count(session.n_slots));
}

}  // namespace

StoreView view_of(SessionFolder& folder) {
  Viewer viewer(folder.store());
  folder.copy().list(
      [](void* context, const reuse::KeptSession& session) {
        static_cast<Viewer*>(context)->add(session);
      },
      &viewer);
  return viewer.done();
}

void print_sessions(const std::vector<SessionRow>& rows) {
  size_t n_name = 4;
  for (const SessionRow& row : rows) n_name = std::max(n_name, escaped(row.name).size());
  const int width = static_cast<int>(n_name);
  std::printf("%-*s %10s %10s %12s  %-16s %-7s %-20s %7s %12s  %s\n", width, "name", "tokens",
              "with KV", "on disk", "model", "KV", "last saved", "age", "leaves after", "state");
  for (const SessionRow& row : rows) {
    std::printf("%-*s %10llu %10llu %12s  %-16s %-7s %-20s %7s %12s  %s\n", width,
                escaped(row.name).c_str(), count(row.n_tokens), count(row.n_kept),
                format_bytes(row.bytes).c_str(), row.model.c_str(), row.kv_type.c_str(),
                row.saved_at.empty() ? "-" : row.saved_at.c_str(), age_of(row.saved_at_s).c_str(),
                format_bytes(row.leaves_after_bytes).c_str(), row.state.c_str());
  }
}

void write_sessions(const std::vector<SessionRow>& rows, Json& json) {
  json.key("sessions").begin_array();
  for (const SessionRow& row : rows) {
    json.begin_object();
    json.key("name").text(row.name);
    json.key("tokens").number(row.n_tokens);
    json.key("kv_tokens").number(row.n_kept);
    json.key("bytes").number(row.bytes);
    json.key("model").text(row.model);
    json.key("kv_type").text(row.kv_type);
    json.key("saved_at").text(row.saved_at);
    json.key("revision").number(row.revision);
    json.key("leaves_after_bytes").number(row.leaves_after_bytes);
    json.key("state").text(row.state);
    json.end_object();
  }
  json.end_array();
}

void check_folder(const StoreCommand& command, bool must_be_there) {
  const std::string& folder = command.engine.store_dir;
  std::error_code unknown;  // then the check reports it
  if (must_be_there && fs::symlink_status(folder, unknown).type() == fs::file_type::not_found) {
    throw Failure{kExitIo, folder + ": there is no such folder (--store DIR of tarn run)"};
  }
  check_store_folder(folder);
}

void open_for(SessionFolder& folder, const StoreCommand& command, const std::string& name) {
  if (folder.open()) return;
  throw Failure{kExitRefused, "no session " + escaped(name) + ": " + command.engine.store_dir +
                                  " has no sessions (tarn store ls --store DIR lists them)"};
}

void remove_session(const StoreCommand& command) {
  SessionFolder folder(command.engine.store_dir);
  open_for(folder, command, command.name);
  const reuse::DeleteDone done = value_of(folder.copy().erase(command.name));
  std::fprintf(stderr, "session %s: deleted, %llu records; %llu shared with others stay\n",
               escaped(command.name).c_str(), count(done.n_erased), count(done.n_shared));
  std::error_code not_there;
  fs::remove(mark_path(command.engine.store_dir, command.name), not_there);
  if (!wrong_chat_name(command.name).empty()) return;
  fs::remove(message_path(command.engine.store_dir, command.name), not_there);
}

void import_file(const StoreCommand& command) {
  SessionFolder folder(command.engine.store_dir);
  const SessionFolder::FileFacts facts = folder.make_room(command.file, command.as);
  if (command.engine.model.empty()) {
    // Printed when all of them are there.
    std::vector<std::pair<std::string, reuse::ImportedSession>> sessions;
    value_of(folder.copy().read({.path = command.file.c_str(),
                                 .name = command.as,
                                 .on_session =
                                     [](void* context, const reuse::ImportedSession& session) {
                                       static_cast<decltype(sessions)*>(context)->push_back(
                                           {std::string(session.name), session});
                                     },
                                 .context = &sessions}));
    for (auto& [name, session] : sessions) {
      session.name = name;
      print_imported(session);
    }
  } else {
    tarn_unpacked done = TARN_INIT(tarn_unpacked);
    import_by_engine(command, folder, facts, done);
    if (done.n_sessions == 1) {
      print_imported({.name = command.as.empty() ? facts.name : command.as,
                      .n_tokens = done.n_tokens,
                      .n_slots = done.n_kept,
                      .was_there = done.n_there > 0});
    } else {
      std::fprintf(stderr, "sessions: %u, %u imported, %u already there\n", done.n_sessions,
                   done.n_sessions - done.n_there, done.n_there);
    }
  }
  folder.keep_room();
}

void add_import_options(const Command& command, StoreCommand& fields) {
  command.add_option("--as", fields.as, "a name in place of its own, for a file with one session");
  command.add_option("-m,--model", fields.engine.model,
                     "refuse sessions of another model, KV type or device; without this option "
                     "tarn run refuses them later");
  command
      .add_option("--kv-type", fields.engine.kv_type,
                  "number format of K and V " + default_of("kv.type"))
      .is_member(std::vector<std::string>(std::begin(kKvTypeNames), std::end(kKvTypeNames)));
  command
      .add_option("--device", fields.engine.device,
                  "where the model runs " + default_of("device.kind"))
      .is_member(names_of(kDeviceNames));
}

}  // namespace tarn::tools
