// Saved sessions to a file, a pack.
#include <algorithm>
#include <cstring>

#include "platform/base/checked.h"
#include "runtime/reuse/session_copy.h"

namespace tarn::reuse {
namespace {

u64 slots_of(const Manifest& manifest, u32 n_pages) {
  return std::min<u64>(u64{n_pages} * manifest.identity.page_tokens, manifest.n_slots);
}

Unexpected unknown_kv() {
  return fail({.status = Status::unsupported,
               .hint = "this session's KV is of a type that this version of Tarn does not have: "
                       "take it up with the one that made it"});
}

Unexpected lost_while_packed() {
  return fail({.status = Status::io_failed,
               .hint = "a part of the session could not be read from the store: pack it again, "
                       "which leaves out what is lost"});
}

// Makes the head of a session with these n_there pages, the first n_shared of which are in the file
// already.
Result<SessionFileHead> file_head(const Crc32c& crc, const Manifest& manifest,
                                  std::span<const std::byte> bytes, u32 n_there, u32 n_shared) {
  const auto bytes_of_group = group_bytes(manifest.identity);
  if (!bytes_of_group) return unknown_kv();
  return SessionFileHead{.manifest_bytes = bytes.size(),
                         .group_bytes = *bytes_of_group,
                         .n_layers = manifest.identity.n_cache_layers,
                         .n_pages = n_there - n_shared,
                         .manifest_crc = crc.bytes(bytes.data(), bytes.size()),
                         .first_page = n_shared};
}

}  // namespace

// Calls fn(found, head) for every session of a pack, in the order of the file. `head` has its
// checksum. Pages that the session before has as well are left out, unless their keys are private:
// an import gives those new keys.
template <class Fn>
Result<void> SessionCopy::each_packed(const PackArgs& args, Fn&& fn) {
  u32 n_before = 0;  // pages of the session before; their keys are in args_.keys
  const auto take = [&](const Found& found) -> Result<void> {
    const Manifest& manifest = found.manifest;
    const u32 n_there = n_pages_there(*args_.store, manifest);
    const u32 n_max = std::min({n_before, n_there, first_private_page(manifest)});
    u32 n_shared = 0;
    while (n_shared < n_max && page_key(manifest, n_shared) == args_.keys[n_shared]) ++n_shared;
    const auto bytes = args_.manifest.first(found.manifest_bytes);
    TARN_TRY(const SessionFileHead head, file_head(*args_.crc, manifest, bytes, n_there, n_shared));
    n_before = static_cast<u32>(std::min<u64>(n_there, args_.keys.size()));
    for (u32 page = n_shared; page < n_before; ++page) args_.keys[page] = page_key(manifest, page);
    alignas(8) std::array<std::byte, store::kSectorBytes> sector;
    return fn(found, encode_session_head(*args_.crc, head, sector));
  };
  const auto take_pinned = [&](const Result<Found>& found) -> Result<void> {
    if (!found) return fail(found.error());
    const Result<void> done = take(*found);
    args_.store->unpin(found->record);
    return done;
  };
  for (u64 i = 0; i < args.names.size(); ++i)
    TARN_CHECK(take_pinned(find(args.names[i], args.tenant_of(i))));
  if (!args.names.empty()) return {};
  const store::RecordIndex& index = args_.store->index();
  for (u32 frame = 0; frame < index.n_frames(); ++frame) {
    const store::IndexEntry& entry = index.frame(frame);
    const bool is_such =
        entry.life == store::Life::published && entry.kind == store::Kind::manifest;
    if (!is_such) continue;
    const auto found = find_at({frame, entry.generation});
    if (!found) continue;  // a damaged one is no session
    const bool is_asked =
        args.tenants.empty() || found->manifest.identity.tenant == args.tenants[0];
    if (is_asked) {
      TARN_CHECK(take_pinned(found));
    } else {
      args_.store->unpin(found->record);
    }
  }
  return {};
}

// Counts first, since the head and the table stand before the sessions. Nothing else writes
// manifests meanwhile; a record that was lost in between makes another head, and the pack fails.
Result<ExportDone> SessionCopy::pack(const PackArgs& args) {
  TARN_CHECK(ops_.begin_groups(0));
  ExportDone done;
  PackHead head;
  const auto entry_of = [](const SessionFileHead& session) {
    return PackEntry{.n_bytes = session_file_bytes(session), .head_crc = session.head_crc};
  };
  TARN_CHECK(each_packed(args, [&](const Found& found, const SessionFileHead& session) {
    ++head.n_sessions;
    head.n_bytes += session_file_bytes(session);
    head.table_crc = added_crc(*args_.crc, head.table_crc, entry_of(session));
    done.n_tokens += found.manifest.token_ids.size();
    done.n_slots += slots_of(found.manifest, session.first_page + session.n_pages);
    return Result<void>();
  }));
  if (head.n_sessions == 0) {
    return fail({.status = Status::not_found,
                 .reason = Reason::name_not_found,
                 .hint = "the store has no sessions to pack: save one first (tarn run --session "
                         "NAME)"});
  }
  const u64 sessions_begin = pack_sessions_begin(head.n_sessions);
  head.n_bytes += sessions_begin;
  FileWriter file;
  TARN_CHECK(file.create(args.path));
  alignas(8) std::array<std::byte, store::kSectorBytes> sector;
  encode_pack_head(*args_.crc, head, sector);
  TARN_CHECK(file.write(sector));
  u32 table_crc = 0;
  TARN_CHECK(each_packed(args, [&](const Found&, const SessionFileHead& session) {
    const PackEntry entry = entry_of(session);
    table_crc = added_crc(*args_.crc, table_crc, entry);
    return file.write(std::as_bytes(std::span(&entry, 1)));
  }));
  if (table_crc != head.table_crc) return lost_while_packed();
  sector.fill(std::byte{0});
  const u64 table_end = store::kSectorBytes + u64{head.n_sessions} * sizeof(PackEntry);
  TARN_CHECK(file.write(std::span(sector).first(sessions_begin - table_end)));
  table_crc = 0;
  TARN_CHECK(each_packed(args, [&](const Found& found, const SessionFileHead& session) {
    table_crc = added_crc(*args_.crc, table_crc, entry_of(session));
    return write_session(file, found, session);
  }));
  if (table_crc != head.table_crc) return lost_while_packed();
  TARN_CHECK(file.finish());
  done.n_sessions = head.n_sessions;
  done.file_bytes = head.n_bytes;
  return done;
}

Result<void> SessionCopy::write_session(FileWriter& file, const Found& found,
                                        const SessionFileHead& head) {
  TARN_CHECK(ops_.begin_groups(head.group_bytes));
  alignas(8) std::array<std::byte, store::kSectorBytes> sector;
  static_cast<void>(encode_session_head(*args_.crc, head, sector));
  TARN_CHECK(file.write(sector));
  const u64 n_padded = align_up(found.manifest_bytes, store::kSectorBytes);
  const auto padding = args_.manifest.first(n_padded).subspan(found.manifest_bytes);
  std::ranges::fill(padding, std::byte{0});
  TARN_CHECK(file.write(args_.manifest.first(n_padded)));
  const Result<void> written = write_groups(file, found.manifest, head);
  ops_.wait_for_all();
  return written;
}

// Reads work ahead of the file by as many groups as there are buffers.
Result<void> SessionCopy::write_groups(FileWriter& file, const Manifest& manifest,
                                       const SessionFileHead& head) {
  const u64 end = (u64{head.first_page} + head.n_pages) * head.n_layers;
  u64 n_begun = u64{head.first_page} * head.n_layers;
  for (u64 group = n_begun; group < end; ++group) {
    for (; n_begun < end && n_begun < group + ops_.n_slots(); ++n_begun) {
      TARN_CHECK(begin_read(manifest, n_begun, ops_.slot(n_begun)));
    }
    BlockingStore::Slot& slot = ops_.slot(group);
    ops_.wait_for(slot);
    if (slot.outcome != store::Outcome::ok) return lost_while_packed();
    const SessionGroupHead group_head =
        group_head_of(*args_.crc, manifest, head, group, ops_.buffer(slot));
    TARN_CHECK(file.write(std::as_bytes(std::span(&group_head, 1))));
    TARN_CHECK(file.write(ops_.buffer(slot)));
  }
  return {};
}

Result<void> SessionCopy::begin_read(const Manifest& manifest, u64 group,
                                     BlockingStore::Slot& slot) {
  const auto ref = group_record(*args_.store, manifest, group);
  if (!ref) return lost_while_packed();
  const u64 tag = ops_.next_tag();
  const store::Begun begun = ops_.begin([&](u64 new_tag) {
    return args_.store->read(
        {.ref = *ref,
         .token_ids = page_ids(manifest, place_of(group, manifest.identity.n_cache_layers).page),
         .payload = ops_.buffer(slot),
         .tag = new_tag});
  });
  if (begun != store::Begun::begun) return lost_while_packed();
  slot = {.busy = true, .tag = tag};
  return {};
}

}  // namespace tarn::reuse
