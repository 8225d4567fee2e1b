#include "tools/tarn/store_view.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <system_error>

#include "tools/support/count.h"
#include "tools/support/escaped.h"
#include "tools/support/exit_code.h"
#include "tools/support/progress.h"
#include "tools/support/utc.h"
#include "tools/tarn/input_mark.h"
#include "tools/tarn/kept_session.h"
#include "tools/tarn/message_file.h"

namespace tarn::tools {
namespace {

namespace fs = std::filesystem;

std::string state_of(const reuse::KeptSession& session) {
  const reuse::Manifest& manifest = session.manifest;
  const bool is_read = manifest.n_slots + 1 >= manifest.token_ids.size();
  // By any engine of this version; one of another kv.type, page or device does so, too.
  const u32 numerics_id = manifest.identity.numerics_id;
  const bool is_of_today =
      (numerics_id == reuse::kCpuNumericsId || numerics_id == reuse::kGpuNumericsId) &&
      manifest.identity.layout == reuse::kPageLayout;
  std::string state = "complete";
  if (!is_read) state = "cut off in a prompt";
  if (is_read && manifest.is_cut_off) state = "cut off in an answer";
  if (!is_of_today) return state + ", KV of another version: will be computed anew";
  if (session.n_pages_there < session.n_pages) state += ", KV evicted in part";
  return state;
}

std::string hex_of(u64 bits) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", count(bits));
  return text;
}

// As messages name a session.
std::string said(const std::string& name, const std::string& tenant) {
  return escaped(name) + (tenant.empty() ? "" : " of " + escaped(tenant));
}

SessionRow row_of(const reuse::KeptSession& session) {
  const reuse::Manifest& manifest = session.manifest;
  const u32 kv_type = manifest.identity.kv_type;
  return {.name = std::string(manifest.name),
          .tenant = std::string(manifest.tenant),
          .model = hex_of(manifest.identity.model.low),
          .kv_type = kv_type < std::size(kKvTypeNames) ? kKvTypeNames[kv_type] : "unknown",
          .state = state_of(session),
          .saved_at = manifest.saved_at_s == 0 ? "" : utc_at(manifest.saved_at_s),
          .tenant_key = manifest.identity.tenant,
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
  Viewer(const store::Store& store, const std::optional<store::Key>& tenant)
      : store_(store),
        tenant_(tenant),
        index_(store.index()),
        frame_bytes_(store.stats().frame_bytes),
        owners_(index_.n_frames()),
        after_bytes_(index_.n_frames(), 0) {
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
        if (first_evicted_ == store::kNoFrame) first_evicted_ = i;
        after_bytes_[i] = n_before * frame_bytes_;
        n_before += index_.frame(i).n_frames;
      }
    }
  }

  void add(const reuse::KeptSession& session) {
    SessionRow row = row_of(session);
    const reuse::Manifest& manifest = session.manifest;
    const auto manifest_record =
        store_.find(store::named_key(store_.secret(), manifest.identity.tenant, manifest.name));
    row.evicted_after_bytes = index_.n_frames() * frame_bytes_;
    const auto own = [&](store::RecordRef ref) {
      if (owners_[ref.frame_idx].empty()) owners_[ref.frame_idx] = said(row.name, row.tenant);
      row.evicted_after_bytes = std::min(row.evicted_after_bytes, after_bytes_[ref.frame_idx]);
    };
    if (manifest_record) own(*manifest_record);
    const u64 n_groups = u64{session.n_pages} * manifest.identity.n_cache_layers;
    for (u64 group = 0; group < n_groups; ++group) {
      if (const auto ref = reuse::group_record(store_, manifest, group)) own(*ref);
    }
    for (u32 page = 0; page < session.n_pages; ++page) {
      row.pages.push_back(reuse::page_key(manifest, page));
    }
    if (!tenant_ || row.tenant_key == *tenant_) rows_.push_back(std::move(row));
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
    const u32 next = first_evicted_;
    if (next == store::kNoFrame) return use;
    use.evicted_next = is_index(index_.frame(next)) ? "an index of a session"
                       : owners_[next].empty()      ? "KV that no session names"
                                                    : "session " + owners_[next];
    return use;
  }
  static u32 order_of(const store::IndexEntry& entry) {
    return entry.kind == store::Kind::extent ? 0 : 1;
  }
  static bool is_index(const store::IndexEntry& entry) {
    return entry.kind == store::Kind::codebook || entry.kind == store::Kind::extent;
  }

  const store::Store& store_;
  std::optional<store::Key> tenant_;
  const store::RecordIndex& index_;
  u64 frame_bytes_;
  std::vector<std::string> owners_;  // by frame: the session that names its record
  std::vector<u64> after_bytes_;     // by frame
  u32 first_evicted_ = store::kNoFrame;
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
  check_api(tarn_store_unpack(
      engine.get(), command.tenant ? command.tenant->c_str() : TARN_ALL_TENANTS,
      command.file.c_str(), command.as.empty() ? nullptr : command.as.c_str(), &done));
}

using NamedSessions = std::vector<std::pair<std::string, reuse::ImportedSession>>;

// Adds each session when it is there.
void import_by_copy(const StoreCommand& command, SessionFolder& folder, NamedSessions& sessions) {
  std::optional<std::string_view> tenant;
  if (command.tenant) tenant = *command.tenant;
  std::error_code unknown;
  const u64 n_bytes = fs::file_size(command.file, unknown);
  folder.on_wait(
      [&folder, n_bytes = unknown ? 0 : n_bytes, progress = std::make_shared<Progress>()] {
        progress->show_bytes("unpacking", folder.store().stats().bytes_written, n_bytes);
      });
  const auto read = folder.copy().read(
      {.path = command.file.c_str(),
       .name = command.as,
       .tenant = tenant,
       .on_session =
           [](void* context, const reuse::ImportedSession& session) {
             static_cast<NamedSessions*>(context)->push_back(
                 {said(std::string(session.name), std::string(session.tenant)), session});
           },
       .context = &sessions});
  folder.on_wait({});
  value_of(read);
}

void print_imported(const NamedSessions& sessions) {
  for (const auto& [name, done] : sessions) {
    if (done.was_there && done.n_groups_new == 0) {
      std::fprintf(stderr, "session %s: already there, skipped\n", name.c_str());
      continue;
    }
    std::fprintf(stderr, "session %s: %s, %llu tokens, %llu with their KV\n", name.c_str(),
                 done.was_there ? "already there, missing KV added" : "imported",
                 count(done.n_tokens), count(done.n_slots));
  }
}

}  // namespace

StoreView view_of(SessionFolder& folder, const std::optional<std::string>& tenant) {
  std::optional<store::Key> key;
  if (tenant) key = folder.copy().tenant_key(*tenant);
  Viewer viewer(folder.store(), key);
  folder.copy().list(
      [](void* context, const reuse::KeptSession& session) {
        static_cast<Viewer*>(context)->add(session);
      },
      &viewer);
  return viewer.done();
}

void print_sessions(const std::vector<SessionRow>& rows) {
  size_t n_name = 4, n_tenant = 6;
  for (const SessionRow& row : rows) {
    n_name = std::max(n_name, escaped(row.name).size());
    n_tenant = std::max(n_tenant, escaped(row.tenant).size());
  }
  const int name_width = static_cast<int>(n_name), tenant_width = static_cast<int>(n_tenant);
  std::printf("%-*s %-*s %10s %10s %12s  %-16s %-7s %-20s %7s %13s  %s\n", name_width, "name",
              tenant_width, "tenant", "tokens", "with KV", "on disk", "model", "KV", "last saved",
              "age", "evicted after", "state");
  for (const SessionRow& row : rows) {
    std::printf("%-*s %-*s %10llu %10llu %12s  %-16s %-7s %-20s %7s %13s  %s\n", name_width,
                escaped(row.name).c_str(), tenant_width,
                row.tenant.empty() ? "-" : escaped(row.tenant).c_str(), count(row.n_tokens),
                count(row.n_kept), format_bytes(row.bytes).c_str(), row.model.c_str(),
                row.kv_type.c_str(), row.saved_at.empty() ? "-" : row.saved_at.c_str(),
                age_of(row.saved_at_s).c_str(), format_bytes(row.evicted_after_bytes).c_str(),
                row.state.c_str());
  }
  const auto differ = [&](std::string SessionRow::*field) {
    return std::ranges::any_of(rows,
                               [&](const SessionRow& r) { return r.*field != rows[0].*field; });
  };
  if (differ(&SessionRow::kv_type)) {
    std::printf("An engine computes sessions of another kv.type than its own anew, from tokens.\n");
  }
  if (differ(&SessionRow::model)) {
    std::printf("An engine refuses sessions of another model than its own.\n");
  }
}

void write_sessions(const std::vector<SessionRow>& rows, Json& json) {
  json.key("sessions").begin_array();
  for (const SessionRow& row : rows) {
    json.begin_object();
    json.key("name").text(row.name);
    json.key("tenant").text(row.tenant);
    json.key("tokens").number(row.n_tokens);
    json.key("kv_tokens").number(row.n_kept);
    json.key("bytes").number(row.bytes);
    json.key("model").text(row.model);
    json.key("kv_type").text(row.kv_type);
    json.key("saved_at").text(row.saved_at);
    json.key("revision").number(row.revision);
    json.key("evicted_after_bytes").number(row.evicted_after_bytes);
    json.key("state").text(row.state);
    json.end_object();
  }
  json.end_array();
}

void check_folder(const StoreCommand& command) {
  const std::string& folder = command.engine.store_dir;
  std::error_code unknown;  // then the check reports it
  if (fs::symlink_status(folder, unknown).type() == fs::file_type::not_found) {
    throw Failure{kExitIo, folder + ": there is no such folder (--store DIR of tarn run)"};
  }
  struct statvfs media {};
  const bool is_read_only = statvfs(folder.c_str(), &media) == 0 && (media.f_flag & ST_RDONLY) != 0;
  if (!is_read_only) check_store_folder(folder);
}

void open_for(SessionFolder& folder, const StoreCommand& command, SessionFolder::Use use) {
  if (folder.open(use)) return;
  const std::string what = command.names.empty() ? "" : " " + escaped(command.names[0]);
  throw Failure{kExitRefused, "no session" + what + ": " + command.engine.store_dir +
                                  " has no sessions (tarn store ls --store DIR lists them)"};
}

std::vector<SessionRow> asked_sessions(SessionFolder& folder, const StoreCommand& command) {
  std::vector<SessionRow> rows = view_of(folder, command.tenant).rows;
  if (command.names.empty()) {
    const auto before = [](const store::Key& a, const store::Key& b) {
      return a.low != b.low ? a.low < b.low : a.high < b.high;
    };
    std::sort(rows.begin(), rows.end(), [&](const SessionRow& a, const SessionRow& b) {
      return std::lexicographical_compare(a.pages.begin(), a.pages.end(), b.pages.begin(),
                                          b.pages.end(), before);
    });
    return rows;
  }
  std::vector<SessionRow> asked;
  for (const std::string& name : command.names) {
    const SessionRow* found = nullptr;
    for (const SessionRow& row : rows) {
      if (row.name != name) continue;
      if (found != nullptr) {
        throw Failure{kExitUsage, "several tenants have a session " + escaped(name) +
                                      ": name one with --tenant (tarn store lists them; --tenant "
                                      "\"\" is the default one, which it shows as -)"};
      }
      found = &row;
    }
    if (found != nullptr) {
      asked.push_back(*found);
    } else {  // its own error: it is not there, or its manifest is damaged
      const store::Key tenant = folder.copy().tenant_key(command.tenant.value_or(""));
      value_of(folder.copy().find_record(name, tenant));
      throw Failure{kExitIo, "the session " + escaped(name) +
                                 " is damaged: tarn store check --remove drops it"};
    }
  }
  return asked;
}

void remove_sessions(const StoreCommand& command) {
  SessionFolder folder(command.engine.store_dir);
  open_for(folder, command, SessionFolder::Use::writes);
  for (const SessionRow& row : asked_sessions(folder, command)) {
    const reuse::DeleteDone done = value_of(folder.copy().erase(row.name, row.tenant_key));
    std::fprintf(stderr, "session %s: deleted, %llu records; %llu shared with others stay\n",
                 said(row.name, row.tenant).c_str(), count(done.n_erased), count(done.n_shared));
    if (!(row.tenant_key == store::Key{})) continue;  // below are files of tarn run and tarn chat
    forget_mark(command.engine.store_dir, row.name);
    std::error_code not_there;
    if (wrong_chat_name(row.name).empty())
      fs::remove(message_path(command.engine.store_dir, row.name), not_there);
  }
}

void import_file(const StoreCommand& command) {
  SessionFolder folder(command.engine.store_dir);
  const SessionFolder::FileFacts facts = folder.make_room(command.file, command.tenant, command.as);
  NamedSessions sessions;  // printed when the last one is there
  tarn_unpacked done = TARN_INIT(tarn_unpacked);
  try {
    command.engine.model.empty() ? import_by_copy(command, folder, sessions)
                                 : import_by_engine(command, folder, facts, done);
  } catch (const Failure& failure) {
    if (!sessions.empty()) folder.keep_file();
    if (sessions.empty() && !folder.has_grown()) throw;
    print_imported(sessions);
    throw Failure{failure.code,
                  failure.text + "; the store keeps what was unpacked, and room for the rest"};
  }
  folder.keep_file();
  if (command.engine.model.empty()) return print_imported(sessions);
  if (done.n_sessions == 1) {
    return print_imported(
        {{escaped(command.as.empty() ? facts.name : command.as),
          {.n_tokens = done.n_tokens, .n_slots = done.n_kept, .was_there = done.n_there > 0}}});
  }
  std::fprintf(stderr, "sessions: %u, %u imported, %u already there\n", done.n_sessions,
               done.n_sessions - done.n_there, done.n_there);
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
