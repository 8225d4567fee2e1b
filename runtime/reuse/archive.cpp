#include "runtime/reuse/archive.h"

#include <algorithm>
#include <utility>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/reuse/manifest_pages.h"

namespace tarn::reuse {
namespace {

constexpr Error kNotKept{.status = Status::invalid_request,
                         .reason = Reason::no_store,
                         .hint =
                             "this engine keeps no sessions: set store.sessions to true and "
                             "store.path to a folder (--store DIR)"};
Result<void> check_store(const ArchiveArgs& args) {
  if (args.kv == nullptr) return fail(kNotKept);
  if (args.store().mode() == store::Mode::off) return fail(args.store().why());
  return {};
}

// How it differs from a session that this engine has saved, in words.
Detail difference_of(const ArchiveArgs& args, const Manifest& manifest) {
  return difference_text(manifest.identity, manifest.model,
                         of_tenant(args.identity, manifest.identity.tenant),
                         args.model_name.view());
}

// Tokens of another model mean other texts; any other difference costs the KV alone.
Result<void> check_manifest(const ArchiveArgs& args, const Manifest& manifest,
                            const store::Key& tenant, std::string_view name) {
  if (manifest.name != name || !(manifest.identity.tenant == tenant))
    return damaged_manifest("name");
  if (!(manifest.identity.model == args.identity.model)) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::saved_otherwise,
                 .key = "model",
                 .hint = "this session is of another model: open it with that one, or begin a "
                         "session of another name",
                 .detail = difference_of(args, manifest)});
  }
  const char* part = keys_fault(args.store().secret(), manifest);
  return part != nullptr ? damaged_manifest(part) : Result<void>();
}

// Slots of a checkpoint: full pages, since the rest follows from tokens; or all, where what its
// choices depend on has changed since the last full page (rows of an input change nothing of it).
u32 checkpoint_slots(const SessionView& session, u32 page_tokens) {
  const u32 n_slots = session.sequence->n_slots();
  const u32 n_full = n_slots / page_tokens * page_tokens;
  const u32 input_begin = session.n_answers == 0 ? 0 : session.answers[session.n_answers - 1].end;
  const bool reads = n_slots < session.n_fed && n_full >= input_begin;
  return session.chooses && !reads ? n_slots : n_full;
}

void log_not_saved(const Log& log, const Error& why) {
  std::array<char, 512> text{};
  format_error(why, text.data(), text.size());
  log.warning("a session's work is not on disk: %s", text.data());
}

}  // namespace

void Archive::init(const ArchiveArgs& args) {
  args_ = args;
  kv::Tiers& tiers = args_.tiers();
  keys_.init(args_.kv);
  writer_.init(&args_, &keys_);
  copy_.init({.store = &args_.store(),
              .crc = args_.crc,
              .manifest = args_.memory.manifest,
              .other_manifest = args_.memory.other_manifest,
              .groups = args_.memory.groups,
              .keys = args_.memory.keys,
              .first_tag = kWriterTag + 1,
              .pump = [](void* mover) { static_cast<kv::Mover*>(mover)->pump(kWaitNs); },
              .context = &tiers.mover});
  n_named_ = 0;
  saving_ = nullptr;
  n_evictions_logged_ = 0;
  is_stopped_.store(false);
}

void Archive::take(const store::Event& event) {
  if (event.tag == kWriterTag) return writer_.take(event);
  copy_.take(event);
}

void Archive::name_private(const kv::Sequence& sequence, std::span<const u32> ids, u32 n_before,
                           u32 first_approx_slot) {
  if (!is_on()) return;
  const u32 page_tokens = args_.identity.page_tokens;
  const u32 begin = std::max(n_before, first_approx_slot) / page_tokens;
  keys_.name_private(sequence, ids, begin, sequence.n_slots() / page_tokens);
}

// ---- Names ------------------------------------------------------------------------------------

Result<void> Archive::check_name(const store::Key& tenant, std::string_view name,
                                 const SavedAs* own) const {
  TARN_CHECK(check_store(args_));
  TARN_CHECK(reuse::check_name(name));
  for (const SavedAs* other : std::span(named_).first(n_named_)) {
    if (other == own || other->name() != name || !(other->tenant.key == tenant)) continue;
    return fail({.status = Status::invalid_request,
                 .reason = Reason::name_in_use,
                 .hint = "another open session has this name: destroy that one, or choose another "
                         "name",
                 .detail = Detail(name)});
  }
  return {};
}

Result<void> Archive::set_name(SavedAs& saved, std::string_view name) {
  TARN_CHECK(check_name(saved.tenant.key, name, &saved));
  if (!saved.tenant.fits()) {
    return fail(
        {.status = Status::invalid_request,
         .reason = Reason::bad_field,
         .key = "tenant",
         .hint = "the name of a tenant that keeps sessions has {1} bytes at most",
         .figures = {{{"bytes", saved.tenant.name_bytes}, {"bytes_max", kManifestNameBytesMax}}}});
  }
  if (saved.name() == name) return {};
  drop(saved);  // under the old name
  const SavedAs before = saved;
  forget(saved);
  saved.tenant = before.tenant;
  saved.stopped_at = before.stopped_at;
  saved.restored = before.restored;
  std::copy(name.begin(), name.end(), saved.name_text.begin());
  saved.name_bytes = static_cast<u32>(name.size());
  named_[n_named_++] = &saved;
  return {};
}

void Archive::forget(SavedAs& saved) {
  writer_.drop(saved);
  if (saving_ == &saved) saving_ = nullptr;
  const auto named = std::span(named_).first(n_named_);
  const auto at = std::ranges::find(named, &saved);
  if (at != named.end()) *at = named_[--n_named_];
  saved = {.tenant = saved.tenant};
}

void Archive::drop(SavedAs& saved) {
  saved.tails.n_slots = 0;  // as many slots may be others
  writer_.drop(saved);
  if (saving_ != &saved) return;
  saving_ = nullptr;
  if (saved.stopped_at == StoppedAt::nothing) saved.stopped_at = saved.saving_at;
}

// ---- Save -------------------------------------------------------------------------------------

Result<void> Archive::save(const SessionView& session, std::string_view name) {
  SavedAs& saved = *session.saved;
  TARN_CHECK(set_name(saved, name));
  finish_checkpoint();
  args_.selector->touch_codebooks(session.session);
  TARN_CHECK(writer_.save(session, session.sequence->n_slots()));
  args_.selector->note_named(session.session, session.index_owner);
  saved.stopped_at = StoppedAt::nothing;
  saved.saved_ns = args_.clock->now_ns();
  saved.n_slots = session.sequence->n_slots();
  log_evictions();
  return {};
}

Result<void> Archive::autosave(SavedAs& saved, std::string_view name, StoppedAt stopped_at) {
  const bool has_name = saved.name() == name;
  TARN_CHECK(set_name(saved, name));
  saved.saved_ns = args_.clock->now_ns();
  if (!has_name) saved.stopped_at = stopped_at;
  return {};
}

// ---- Checkpoints ------------------------------------------------------------------------------

// The end of the store was told when it came.
bool Archive::makes_checkpoints() const {
  return is_on() && args_.checkpoint_ns > 0 && !is_stopped_.load(std::memory_order_relaxed) &&
         args_.store().mode() == store::Mode::on;
}

bool Archive::may_checkpoint() {
  if (!is_on()) return false;
  take_checkpoint();
  log_evictions();
  return makes_checkpoints() && writer_.may_begin();
}

// Returns whether a checkpoint is due: of a session that goes on every checkpoint_ms, as full pages
// come; of an answer that has ended at once, with its last token. A prompt without a request for an
// answer is no end: its manifest says that it was cut off. Where KV was lost, not before as much is
// there again: the manifest on disk may know of records that are not lost.
bool Archive::is_due(const SavedAs& saved, u32 n_slots, bool is_idle) const {
  if (saved.name_bytes == 0) return false;
  const u32 page_tokens = args_.identity.page_tokens, n_full = n_slots / page_tokens;
  const u64 now_ns = args_.clock->now_ns();
  if (!is_idle || saved.stopped_at == StoppedAt::input) {
    return now_ns - saved.saved_ns >= args_.checkpoint_ns && n_full > saved.n_slots / page_tokens;
  }
  return saved.stopped_at == StoppedAt::answer && n_full >= saved.n_slots / page_tokens &&
         (saved.refused_ns == 0 || now_ns - saved.refused_ns >= args_.checkpoint_ns);
}

// Returns the same now. A refused one is tried again, but does not wake the engine.
bool Archive::is_due_now(const SavedAs& saved, u32 n_slots, bool is_idle) const {
  return saved.refused_ns == 0 && is_idle && saved.stopped_at == StoppedAt::answer &&
         makes_checkpoints() && is_due(saved, n_slots, is_idle);
}

void Archive::checkpoint(const SessionView& session) {
  SavedAs& saved = *session.saved;
  saved.saved_ns = args_.clock->now_ns();
  saved.refused_ns = 0;
  saving_ = &saved;
  saved.saving_at = std::exchange(saved.stopped_at, StoppedAt::nothing);
  args_.selector->touch_codebooks(session.session);
  writer_.begin(session, checkpoint_slots(session, args_.identity.page_tokens));
  writer_.pump();
  take_checkpoint();
}

// How the checkpoint under way has ended, where it has.
void Archive::take_checkpoint() {
  if (saving_ == nullptr || writer_.is_saving()) return;
  SavedAs& saved = *std::exchange(saving_, nullptr);
  if (writer_.last()) {
    saved.n_slots = writer_.n_slots();
    args_.selector->note_named(writer_.session().session, writer_.session().index_owner);
    return;
  }
  if (saved.stopped_at == StoppedAt::nothing) saved.stopped_at = saved.saving_at;
  saved.refused_ns = std::max<u64>(1, args_.clock->now_ns());
  log_not_saved(args_.log, writer_.last().error());
}

void Archive::finish_checkpoint() {
  if (saving_ == nullptr) return;
  writer_.finish();
  take_checkpoint();
}

void Archive::checkpoint_last(const SessionView& session) {
  const SavedAs& saved = *session.saved;
  if (saving_ == &saved) finish_checkpoint();
  const u32 page_tokens = args_.identity.page_tokens, n_slots = session.sequence->n_slots();
  const bool stands = saved.stopped_at == StoppedAt::input ||
                      (saved.stopped_at == StoppedAt::answer && session.is_idle);
  if (!makes_checkpoints() || saved.name_bytes == 0 || !stands || saved.refused_ns != 0) return;
  if (n_slots / page_tokens < saved.n_slots / page_tokens) return;
  if (const Result<void> settled = settle(); !settled)
    return log_not_saved(args_.log, settled.error());
  checkpoint(session);
  finish_checkpoint();
}

// Logs evictions, so that the owner of a saved session hears that it is gone.
void Archive::log_evictions() {
  const u64 n = args_.store().index().n_manifests_evicted();
  if (n == n_evictions_logged_) return;
  args_.log.warning(
      "%llu kept sessions gave way to newer ones in the store: raise store.kept_tokens, and "
      "store.quota_bytes where it is less than that takes, or delete those that are done with "
      "(tarn store rm)",
      static_cast<unsigned long long>(n - n_evictions_logged_));
  n_evictions_logged_ = n;
}

// Nothing of ours is on its way: the buffers are free.
Result<void> Archive::settle() {
  finish_checkpoint();
  return writer_.settle();
}

// ---- Restore ----------------------------------------------------------------------------------

Result<Archive::Found> Archive::find(std::string_view tenant_name, std::string_view name) {
  TARN_CHECK(check_store(args_));
  const store::Key tenant = copy_.tenant_key(tenant_name);
  TARN_CHECK(check_name(tenant, name));
  TARN_CHECK(settle());
  TARN_TRY(const store::RecordRef ref, copy_.find_record(name, tenant));
  const u64 n_bytes = args_.store().index().entry(ref).payload_bytes;
  const auto bytes = args_.memory.manifest.first(align_up(n_bytes, store::kSectorBytes));
  if (!copy_.ops().read(ref, bytes)) return damaged_manifest(name);
  TARN_TRY(const Manifest manifest, decode_manifest(*args_.crc, bytes.first(n_bytes)));
  TARN_CHECK(check_manifest(args_, manifest, tenant, name));
  if (!is_own(manifest)) return Found{.manifest = manifest, .is_foreign = true};
  return Found{manifest, n_pages_there(*args_.kv, manifest)};
}

bool Archive::is_own(const Manifest& manifest) const {
  return manifest.identity == of_tenant(args_.identity, manifest.identity.tenant);
}

Result<bool> Archive::restore(SavedAs& saved, kv::Sequence& sequence, const Found& found,
                              const store::Key& root,
                              const std::optional<store::Key>& index_owner) {
  const Manifest& manifest = found.manifest;
  if (found.is_foreign) {
    args_.log.warning("a kept session %s: its KV is computed anew from its tokens",
                      difference_of(args_, manifest).c_str());
  }
  const u32 page_tokens = args_.identity.page_tokens;
  const std::span<const u32> ids = manifest.token_ids;
  bool has_index = index_owner.has_value();
  const bool is_approx = manifest.first_approx_slot != 0;
  const u32 first_private = first_private_page(manifest);
  u32 n_pages =
      is_approx && !has_index ? std::min(found.n_pages_there, first_private) : found.n_pages_there;
  const u32 n_exact = std::min({n_pages, manifest.n_slots / page_tokens, first_private});
  (void)args_.kv->prefixes().take(sequence, root, ids.first(u64{n_exact} * page_tokens));
  for (u32 page = sequence.n_slots() / page_tokens; page < n_pages; ++page) {
    TARN_TRY(const bool is_there, take_records(*args_.kv, sequence, manifest, page));
    if (is_there) continue;
    n_pages = is_approx ? std::min(page, n_exact) : page;  // it gave way meanwhile
    has_index = false;
  }
  const u32 n_slots = std::min(n_pages * page_tokens, manifest.n_slots);
  const u32 n_full = n_slots / page_tokens;
  args_.kv->prefixes().list(sequence, root, ids, 0, std::min(n_full, n_exact));
  if (n_full > n_exact) {
    keys_.name_private(sequence, ids, n_exact, n_full, manifest.groups.subspan(n_exact));
  }
  if (n_full < n_pages) {
    const Result<void> is_cut = args_.kv->truncate(sequence, n_slots);
    if (!is_cut && is_cut.error().status != Status::io_failed) return fail(is_cut.error());
    has_index = has_index && is_cut;
    const u32 n_left = is_approx ? n_exact : n_full;
    if (!is_cut) TARN_CHECK(args_.kv->truncate(sequence, n_left * page_tokens));
  }
  TARN_CHECK(set_name(saved, manifest.name));
  saved.revision = manifest.revision;
  if (is_approx && has_tail(manifest) && !found.is_foreign) saved.tails.put(manifest.tail, 0);
  saved.restored = {.is_cut_off = manifest.is_cut_off, .n_drawn = manifest.n_drawn};
  // An index without records has an owner now, which is to be found there next time.
  const bool lacks_owner = !manifest.index.empty() && manifest.index[0].n_rows > 0 &&
                           manifest.index[0].key == store::Key{};
  const bool has_owner = has_index && !(*index_owner == store::Key{});
  if (lacks_owner && has_owner && !manifest.is_cut_off) saved.stopped_at = StoppedAt::answer;
  saved.n_slots = manifest.n_slots;  // the manifest is the better one until as much is there again
  saved.saved_ns = args_.clock->now_ns();
  return has_index;
}

// ---- Files ------------------------------------------------------------------------------------

Result<SessionCopy*> Archive::files() {
  TARN_CHECK(check_store(args_));
  TARN_CHECK(settle());
  return &copy_;
}

Result<ImportDone> Archive::import_from(const char* path, std::optional<std::string_view> tenant,
                                        std::string_view name) {
  TARN_TRY(SessionCopy* const copy, files());
  const Result<ImportDone> done =
      copy->read({.path = path,
                  .name = name,
                  .tenant = tenant,
                  .identity = &args_.identity,
                  .model_name = args_.model_name.view(),
                  .group_bytes = args_.tiers().residency.shape().group_bytes(),
                  .check_name = [](void* self, const store::Key& whose,
                                   std::string_view own_name) -> Result<void> {
                    return static_cast<Archive*>(self)->check_name(whose, own_name);
                  },
                  .context = this});
  log_evictions();
  return done;
}

// Erases the session, its pages that no session has any more, as far as no other session said them,
// and what followed its last one.
Result<DeleteDone> Archive::erase(std::string_view tenant_name, std::string_view name) {
  TARN_TRY(SessionCopy* const copy, files());
  const store::Key tenant = copy->tenant_key(tenant_name);
  TARN_CHECK(check_name(tenant, name));
  const Result<Found> found = find(tenant_name, name);
  if (found && !found->is_foreign) drop_idle(*args_.kv, found->manifest);
  TARN_CHECK(settle());
  args_.tiers().mover.settle();
  return copy->erase(name, tenant);
}

}  // namespace tarn::reuse
