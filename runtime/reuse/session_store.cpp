#include "runtime/reuse/session_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::reuse {
namespace {

constexpr u64 kTag = kv::kMovesMax;  // the mover's are below, a copy's above
constexpr u64 kWaitNs = 10'000'000;

constexpr Error kLost{.status = Status::io_failed,
                      .hint =
                          "a part of this session's KV could not be read back from the store, "
                          "so it cannot be saved: generate, which computes it anew, and save "
                          "again"};
constexpr Error kNotWritten{.status = Status::io_failed,
                            .hint =
                                "the session could not be written to the store: check the disk "
                                "and open the engine again"};

}  // namespace

void SessionStore::init(const SessionStoreArgs& args) {
  *this = SessionStore();
  args_ = args;
  copy_.init({.store = args.store,
              .crc = args.crc,
              .manifest = args.manifest,
              .other_manifest = args.other_manifest,
              .groups = args.groups,
              .keys = args.keys,
              .first_tag = kTag + 1,
              .pump = [](void* mover) { static_cast<kv::Mover*>(mover)->pump(kWaitNs); },
              .context = args.mover});
}

void SessionStore::set_identity(const KvIdentity& identity) {
  identity_ = identity;
  root_ = identity_key(args_.store->secret(), identity);
}

u32 SessionStore::name_of(const kv::Sequence& sequence, u32 page) const {
  return args_.residency->entry(sequence.group(0, page).idx).name;
}

void SessionStore::name_pages(const kv::Sequence& sequence, std::span<const u32> ids, u32 begin,
                              u32 end) {
  for (u32 page = begin; page < end; ++page) {
    const u32 before = page == 0 ? kv::kNoName : name_of(sequence, page - 1);
    if (page > 0 && before == kv::kNoName) return;  // of no tokens that we know
    set_name(
        sequence, page,
        args_.names->make(root_, before, ids.subspan(u64{page} * page_tokens(), page_tokens())));
  }
}

void SessionStore::name_unshared(const kv::Sequence& sequence, std::span<const u32> ids, u32 begin,
                                 u32 end, std::span<const store::Key> keys) {
  for (u32 page = begin; page < end; ++page) {
    const store::Key key = keys.empty() ? draw_key() : keys[page - begin];
    set_name(
        sequence, page,
        args_.names->make_unshared(key, ids.subspan(u64{page} * page_tokens(), page_tokens())));
  }
}

void SessionStore::set_name(const kv::Sequence& sequence, u32 page, u32 name) {
  for (u32 layer = 0; layer < args_.n_cache_layers; ++layer) {
    args_.residency->set_name(sequence.group(layer, page).idx, name, layer);
  }
}

store::Key SessionStore::draw_key() {
  return store::unshared_key(args_.store->secret(), {args_.nonce, n_drawn_++, 0, 0});
}

u32 SessionStore::n_named_pages(const kv::Sequence& sequence) const {
  u32 page = 0;
  while (page < sequence.n_slots() / page_tokens() && name_of(sequence, page) != kv::kNoName) {
    ++page;
  }
  return page;
}

// ---- Saving -----------------------------------------------------------------------------------

void DrawnTails::put(const store::Key& key, u32 of_slots) {
  if (n == keys.size()) {
    std::copy(keys.begin() + 1, keys.end(), keys.begin());
    --n;
  }
  keys[n++] = key;
  n_slots = of_slots;
}

void SessionStore::begin(const SaveArgs& args, bool flushes) {
  TARN_ASSERT(is_on() && may_begin());
  TARN_ASSERT(args.n_slots <= args.sequence->n_slots() && args.n_slots <= args.ids.size());
  save_ = args;
  stage_ = Stage::groups;
  next_ = 0;
  begun_ = failed_ = false;
  flushes_ = flushes;
  last_ = {};
  if (n_named_pages(*args.sequence) < args.n_slots / page_tokens()) {
    end(fail(
        {.status = Status::unsupported,
         .hint = "this session's KV was filled in without a forward pass: it cannot be saved"}));
    return;
  }
  if (has_tail() && !flushes_) copy_tail();
}

void SessionStore::finish_save() {
  while (is_saving()) {
    if (!pump()) args_.mover->pump(kWaitNs);
  }
}

Result<void> SessionStore::save(const SaveArgs& args) {
  TARN_CHECK(settle());  // somebody's publication, and what a save that was dropped had begun
  begin(args, /*flushes=*/true);
  finish_save();
  return last_;
}

void SessionStore::drop(const kv::Sequence& sequence) {
  if (!is_saving(sequence)) return;
  stage_ = Stage::none;
}

void SessionStore::end(Result<void> how) {
  last_ = how;
  stage_ = Stage::none;
}

bool SessionStore::pump() {
  if (!is_saving()) return false;
  while (advance()) {
  }
  return !is_saving();
}

// True where a stage has ended and another one began.
bool SessionStore::advance() {
  switch (stage_) {
    case Stage::groups:
      return save_groups();
    case Stage::tail:
      return save_tail();
    case Stage::manifest:
      return save_manifest();
    case Stage::old_tails:
      return erase_old_tails();
    case Stage::flush:
      return flush();
    case Stage::none:
      return false;
  }
  return false;
}

bool SessionStore::save_groups() {
  const u32 n_layers = args_.n_cache_layers;
  const u32 n_groups = save_.n_slots / page_tokens() * n_layers;
  u32 n_waiting = 0;
  for (u32 i = next_; i < n_groups && n_waiting < args_.spills_max; ++i) {
    const kv::Saved saved =
        args_.mover->save(save_.sequence->group(i % n_layers, i / n_layers).idx);
    if (saved == kv::Saved::yes && i == next_) ++next_;
    if (saved == kv::Saved::later) ++n_waiting;
    if (saved == kv::Saved::refused) end(args_.mover->why_refused());
    if (saved == kv::Saved::lost) end(fail(kLost));
    if (!is_saving()) return false;
  }
  if (next_ < n_groups) return false;
  next_ = 0;
  stage_ = has_tail() ? Stage::tail : Stage::manifest;
  return true;
}

std::span<std::byte> SessionStore::group_bytes(const kv::Sequence& sequence, u32 cache_layer,
                                               u32 page) const {
  u8* group = args_.residency->group(sequence.group(cache_layer, page).idx);
  return {reinterpret_cast<std::byte*>(group), args_.residency->shape().group_bytes()};
}

// What was in the frame before is nobody's business, and equal tails have equal bytes.
void SessionStore::zero_behind(std::span<std::byte> group, u32 n_slots) const {
  const kv::GroupShape& shape = args_.residency->shape();
  const u64 used_bytes = u64{n_slots} * 2 * shape.vector_bytes;
  for (u32 head = 0; head < shape.n_kv_heads; ++head) {
    std::byte* page = group.data() + head * shape.page_bytes();
    std::memset(page + used_bytes, 0, shape.page_bytes() - used_bytes);
  }
  std::memset(group.data() + shape.payload_bytes(), 0, group.size() - shape.payload_bytes());
}

// The key of the tail: a drawn one again where it was drawn for the same slots.
void SessionStore::name_tail() {
  const u32 n_pages = save_.n_slots / page_tokens();
  const auto ids = save_.ids.first(save_.n_slots).subspan(u64{n_pages} * page_tokens());
  DrawnTails& tails = *save_.tails;
  if (!draws_tail()) {
    const store::Key& before =
        n_pages == 0 ? root_ : args_.names->chain(name_of(*save_.sequence, n_pages - 1));
    tail_ = store::chain_key(args_.store->secret(), before, ids);
  } else if (tails.n > 0 && tails.n_slots == save_.n_slots) {
    tail_ = tails.keys[tails.n - 1];
  } else {
    tail_ = draw_key();
    tails.put(tail_, save_.n_slots);
  }
}

// All layers, with zeros behind the slots.
void SessionStore::copy_tail() {
  for (u32 layer = 0; layer < args_.n_cache_layers; ++layer) {
    const auto live = group_bytes(*save_.sequence, layer, save_.n_slots / page_tokens());
    std::memcpy(tail_bytes(layer).data(), live.data(), live.size());
    zero_behind(tail_bytes(layer), save_.n_slots % page_tokens());
  }
}

// Of a save that is waited for, where it lies; else its copy.
std::span<std::byte> SessionStore::tail_bytes(u32 cache_layer) const {
  if (flushes_) return group_bytes(*save_.sequence, cache_layer, save_.n_slots / page_tokens());
  const u64 n_bytes = args_.residency->shape().group_bytes();
  TARN_ASSERT((cache_layer + 1) * n_bytes <= args_.groups.size());
  return args_.groups.subspan(cache_layer * n_bytes, n_bytes);
}

bool SessionStore::save_tail() {
  if (!std::exchange(begun_, true)) name_tail();
  const u32 n_slots = save_.n_slots % page_tokens();
  const auto ids = save_.ids.first(save_.n_slots).last(n_slots);
  while (next_ < args_.n_cache_layers && !failed_) {
    const auto bytes = tail_bytes(next_);
    if (flushes_) zero_behind(bytes, n_slots);
    const store::Begun begun =
        args_.store->put({.kind = store::Kind::group,
                          .key = store::layer_key(args_.store->secret(), tail_, next_),
                          .token_ids = ids,
                          .payload = bytes,
                          .payload_bytes = bytes.size(),
                          .tag = kTag});
    if (begun == store::Begun::busy) return false;
    if (begun == store::Begun::begun) ++n_asked_;
    if (begun != store::Begun::begun && begun != store::Begun::known) {
      last_ = refused(begun);
      failed_ = true;
    }
    ++next_;
  }
  if (n_asked_ > 0) return false;
  if (failed_) {
    end(last_ ? fail(kNotWritten) : last_);
    return false;
  }
  begun_ = false;
  stage_ = Stage::manifest;
  return true;
}

bool SessionStore::save_manifest() {
  if (begun_ && n_asked_ > 0) return false;
  if (begun_) {
    if (failed_) {
      end(fail(kNotWritten));
      return false;
    }
    begun_ = false;
    next_ = 0;
    stage_ = Stage::old_tails;
    return true;
  }
  if (args_.store->mode() == store::Mode::off) {  // and may have the buffer for ever
    end(refused(store::Begun::not_now));
    return false;
  }
  if (!buffer_is_free()) return false;  // the one before is on its way
  const u32 n_pages = save_.n_slots / page_tokens();
  TARN_ASSERT(n_pages <= args_.keys.size());
  for (u32 page = 0; page < n_pages; ++page) {
    args_.keys[page] = args_.names->chain(name_of(*save_.sequence, page));
  }
  const bool has_turn = save_.turn_begin < save_.ids.size();
  const Manifest manifest{
      .identity = identity_,
      .revision = save_.revision,
      .n_slots = save_.n_slots,
      .tail = has_tail() ? tail_ : store::Key{},
      .sampler = save_.sampler,
      .lossy_from = save_.lossy_from,
      .saved_at_s = save_.saved_at_s,
      .groups = args_.keys.first(n_pages),
      .codebooks = std::span(&save_.codebook, save_.codebook.n_slots == 0 ? 0 : 1),
      .token_ids = save_.ids,
      .turn_begins = std::span<const u32>(&save_.turn_begin, has_turn ? 1 : 0),
      .biases = std::span<const ManifestBias>(save_.biases).first(save_.n_biases),
      .name = save_.name,
      .policy = save_.policy,
      .index = std::span(&save_.index, save_.policy.empty() ? 0 : 1),
      .answers = std::span(save_.answers).first(save_.n_answers),
      .n_fed = save_.n_fed};
  if (const char* part = manifest_fault(manifest)) {  // a state that was taken up may be odd
    end(fail({.status = Status::unsupported,
              .hint = "this session's state cannot be written: begin a new one",
              .detail = Detail(part)}));
    return false;
  }
  const u64 n_bytes = manifest_bytes(manifest);
  const auto payload = args_.manifest.first(align_up(n_bytes, store::kSectorBytes));
  encode_manifest(*args_.crc, manifest, payload.first(n_bytes));
  std::memset(payload.data() + n_bytes, 0, payload.size() - n_bytes);
  const store::Begun begun = args_.store->put(
      {.kind = store::Kind::manifest,
       .key = store::named_key(args_.store->secret(), identity_.tenant, save_.name),
       .payload = payload,
       .payload_bytes = n_bytes,
       .known = store::PutArgs::If::replace,
       .tag = kTag});
  if (begun == store::Begun::busy || begun == store::Begun::known) return false;
  if (begun != store::Begun::begun) {
    end(refused(begun));
    return false;
  }
  begun_ = true;
  failed_ = false;
  ++n_asked_;
  return false;
}

// Nobody asks for them any more. What cannot be erased gives way to others by and by.
bool SessionStore::erase_old_tails() {
  DrawnTails& tails = *save_.tails;
  const bool is_drawn = draws_tail();
  for (; next_ < tails.n * args_.n_cache_layers; ++next_) {
    const store::Key& key = tails.keys[next_ / args_.n_cache_layers];
    if (is_drawn && key == tail_) continue;
    const auto found = args_.store->find(
        store::layer_key(args_.store->secret(), key, next_ % args_.n_cache_layers));
    if (!found || args_.store->index().entry(*found).holds > 0) continue;
    const store::Begun begun = args_.store->erase(*found, kTag);
    if (begun == store::Begun::busy) return false;
    if (begun == store::Begun::begun) ++n_asked_;
  }
  if (n_asked_ > 0) return false;
  tails.n = 0;
  if (is_drawn) tails.put(tail_, save_.n_slots);
  failed_ = false;
  stage_ = Stage::flush;
  if (!flushes_) end({});
  return flushes_;
}

bool SessionStore::flush() {
  if (n_asked_ > 0) return false;
  if (begun_) {
    end(failed_ ? Result<void>(fail(kNotWritten)) : Result<void>());
    return false;
  }
  const store::Begun begun = args_.store->flush(kTag);
  if (begun == store::Begun::busy) return false;
  if (begun != store::Begun::begun) {
    end(refused(begun));
    return false;
  }
  begun_ = true;
  ++n_asked_;
  return false;
}

Unexpected SessionStore::refused(store::Begun begun) const {
  return fail(why_not_begun(*args_.store, begun));
}

void SessionStore::take(const store::Event& event) {
  if (event.tag != kTag) return copy_.take(event);
  if (event.outcome == store::Outcome::returned) {
    TARN_ASSERT(n_lent_ > 0);
    --n_lent_;
    return;
  }
  TARN_ASSERT(n_asked_ > 0);
  --n_asked_;
  if (event.lent) ++n_lent_;
  if (event.outcome != store::Outcome::ok) failed_ = true;
}

void SessionStore::wait() {
  while (n_asked_ > 0) args_.mover->pump(kWaitNs);
}

// ---- Taking up --------------------------------------------------------------------------------

Result<void> SessionStore::settle() {
  while (is_saving()) {
    if (!pump()) args_.mover->pump(kWaitNs);
  }
  wait();
  if (n_lent_ == 0) return {};
  return refused(store::Begun::not_now);  // the disk has the buffer, and does not answer
}

Result<Manifest> SessionStore::find(std::string_view name) {
  TARN_CHECK(settle());
  const auto found =
      args_.store->find(store::named_key(args_.store->secret(), identity_.tenant, name));
  if (!found) {
    return fail({.status = Status::not_found,
                 .hint = "the store has no session of this name: it was never saved here, or gave "
                         "way to others",
                 .detail = Detail(name)});
  }
  const u64 n_bytes = args_.store->index().entry(*found).payload_bytes;
  const u64 n_padded = align_up(n_bytes, store::kSectorBytes);
  if (n_padded > args_.manifest.size()) {
    return fail({.status = Status::invalid_request,
                 .hint = "the session is longer than the context: raise -c (kv.context_tokens)",
                 .detail = Detail(name)});
  }
  failed_ = false;
  const store::Begun begun =
      args_.store->read({.ref = *found, .payload = args_.manifest.first(n_padded), .tag = kTag});
  if (begun == store::Begun::begun) {
    ++n_asked_;
    wait();
  }
  if (begun != store::Begun::begun || failed_) {
    return fail({.status = Status::io_failed,
                 .hint = "a saved session is damaged and cannot be taken up: begin a new one",
                 .detail = Detail(name)});
  }
  TARN_TRY(const Manifest manifest, decode_manifest(*args_.crc, args_.manifest.first(n_bytes)));
  TARN_CHECK(check(manifest, name));
  return manifest;
}

Result<void> SessionStore::check(const Manifest& manifest, std::string_view name) const {
  const auto damaged = [](const char* part) {
    return fail({.status = Status::io_failed,
                 .hint = "a saved session is damaged and cannot be taken up: begin a new one",
                 .detail = Detail(part)});
  };
  if (manifest.name != name) return damaged("name");
  const char* field = first_difference(manifest.identity, identity_);
  if (field != nullptr && std::string_view(field) == "numerics_id") {
    return fail({.status = Status::invalid_request,
                 .hint =
                     "this session's KV was computed on another kind of device, or by a version "
                     "whose results differ: choose that device (--device cpu, or cuda), or "
                     "begin a session of another name",
                 .detail = Detail("device.kind")});
  }
  if (field != nullptr) {
    return fail({.status = Status::invalid_request,
                 .hint = "this session was saved by another model or with other settings, of which "
                         "this is the first: use the same ones, or begin a session of another name",
                 .detail = Detail(field)});
  }
  if (const char* part = keys_fault(args_.store->secret(), manifest)) return damaged(part);
  return {};
}

std::optional<store::RecordRef> SessionStore::record(const Manifest& manifest, u32 cache_layer,
                                                     u32 page) const {
  const store::Key& chain = page_key(manifest, page);
  const auto found = args_.store->find(store::layer_key(args_.store->secret(), chain, cache_layer));
  if (!found) return std::nullopt;
  const u64 n_bytes = args_.store->index().entry(*found).payload_bytes;
  if (n_bytes != args_.residency->shape().group_bytes()) return std::nullopt;
  return *found;
}

u32 SessionStore::n_pages_there(const Manifest& manifest) const {
  const u32 n_pages = static_cast<u32>(ceil_div(manifest.n_slots, page_tokens()));
  for (u32 page = 0; page < n_pages; ++page) {
    for (u32 layer = 0; layer < args_.n_cache_layers; ++layer) {
      if (!record(manifest, layer, page)) return page;
    }
  }
  return n_pages;
}

void SessionStore::adopt(const kv::Sequence& sequence, const Manifest& manifest, u32 n_pages) {
  for (u32 page = 0; page < n_pages; ++page) {
    for (u32 layer = 0; layer < args_.n_cache_layers; ++layer) {
      const auto ref = record(manifest, layer, page);
      TARN_ASSERT(ref.has_value());  // n_pages_there() said so
      args_.residency->adopt(sequence.group(layer, page).idx, *ref);
    }
  }
}

// ---- Copies -----------------------------------------------------------------------------------

Result<ExportDone> SessionStore::export_to(std::string_view name, const char* path) {
  TARN_CHECK(settle());
  return copy_.write(name, path);
}

Result<std::string_view> SessionStore::name_in(const char* path) {
  TARN_CHECK(settle());
  TARN_TRY(const SessionCopy::FileFacts facts, copy_.look_at(path));
  return facts.manifest.name;
}

Result<ImportDone> SessionStore::import_from(const char* path, std::string_view name) {
  TARN_CHECK(settle());
  return copy_.read({.path = path,
                     .name = name,
                     .identity = &identity_,
                     .group_bytes = args_.residency->shape().group_bytes()});
}

Result<DeleteDone> SessionStore::erase(std::string_view name) {
  TARN_CHECK(settle());
  return copy_.erase(name);
}

}  // namespace tarn::reuse
