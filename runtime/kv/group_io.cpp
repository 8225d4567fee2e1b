#include "runtime/kv/group_io.h"

#include <algorithm>
#include <utility>

#include "platform/base/assert.h"

namespace tarn::kv {

void GroupIo::init(const MoverArgs& args, MoverStats* stats) {
  TARN_ASSERT(args.loads_max > 0 && args.spills_max > 0);
  TARN_ASSERT(args.loads_max + args.spills_max <= kMovesMax);
  *this = GroupIo();
  args_ = args;
  stats_ = stats;
}

GroupIo::Move* GroupIo::free_move() {
  for (Move& move : moves_) {
    if (move.kind == MoveKind::none) return &move;
  }
  return nullptr;
}

void GroupIo::begin_gather(const GatherArgs* args) {
  TARN_ASSERT(gather_ == nullptr && args->wanted.size() == args->out.size());
  TARN_ASSERT(args->wanted.size() == args_.residency->shape().n_kv_heads);
  gather_ = args;
  gather_is_lost_ = false;
}

bool GroupIo::end_gather() {
  gather_ = nullptr;
  return !gather_is_lost_;
}

bool GroupIo::is_gathering() const {
  return std::any_of(moves_.begin(), moves_.end(),
                     [](const Move& move) { return move.kind == MoveKind::part && !move.lent; });
}

// Without a page: two openings of a store, two groups and two contents of one group never have the
// same key.
store::Key GroupIo::key_of(u32 group_idx) const {
  if (args_.pages->page_of(group_idx) != kNoPage) return args_.pages->group_key(group_idx);
  const std::array<u64, 3> words = {args_.nonce, group_idx,
                                    args_.residency->entry(group_idx).generation};
  return store::root_key(args_.store->secret(), std::as_bytes(std::span(words)));
}

// Returns the ids that the record of the group carries.
std::span<const u32> GroupIo::token_ids_of(u32 group_idx) const {
  const u32 page = args_.pages->page_of(group_idx);
  return page == kNoPage ? std::span<const u32>{} : args_.pages->token_ids(page);
}

store::Begun GroupIo::load(const Load& load) {
  Move& move = *free_move();
  const store::RecordRef record = args_.residency->entry(load.group_idx).record;
  const Ticket ticket = args_.residency->begin_loading(load.group_idx, load.is_later);
  const store::Begun begun = args_.store->read({.ref = record,
                                                .token_ids = token_ids_of(load.group_idx),
                                                .payload = args_.residency->frame(ticket.frame),
                                                .sectors = load.sectors,
                                                .tag = tag_of(move)});
  if (begun == store::Begun::busy) {
    args_.residency->end_loading(ticket, LoadEnd::abandoned);
    return begun;
  }
  const bool is_part = !load.sectors.empty();
  if (begun != store::Begun::begun) {  // gone, or the store is off: it will not come back
    args_.residency->end_loading(ticket, LoadEnd::lost);
    args_.residency->give_back(ticket);
    ++stats_->n_lost;
    gather_is_lost_ = gather_is_lost_ || is_part;
    return begun;
  }
  const u64 n_bytes = is_part ? load.sectors.size() * store::kSectorBytes
                              : args_.residency->frame(ticket.frame).size();
  move = {.kind = is_part ? MoveKind::part : MoveKind::load,
          .ticket = ticket,
          .group = load.group,
          .n_bytes = n_bytes,
          .n_requests = kLoadRequests + (is_part ? load.sectors.size() - 1 : 0)};
  watch_.begin(args_.clock->now_ns(), n_loading_);
  ++n_loading_;
  ++stats_->n_loads;
  stats_->bytes_loaded += n_bytes;
  stats_->n_gather_reads += is_part;
  stats_->bytes_gathered += is_part ? n_bytes : 0;
  return begun;
}

// Returns whether a record under this key is kept or replaced. A foreign file may have one there
// that is no group of ours: it is replaced.
store::PutArgs::If GroupIo::what_if_known(const store::Key& key, u64 n_bytes) const {
  const auto found = args_.store->find(key);
  const bool is_ours = !found || args_.store->index().entry(*found).payload_bytes == n_bytes;
  return is_ours ? store::PutArgs::If::absent : store::PutArgs::If::replace;
}

store::Begun GroupIo::store(u32 group_idx) {
  Move& move = *free_move();
  const store::Key key = key_of(group_idx);
  const Ticket ticket = args_.residency->begin_storing(group_idx);
  const std::span<std::byte> payload = args_.residency->frame(ticket.frame);
  const store::Begun begun = args_.store->put({.kind = store::Kind::group,
                                               .key = key,
                                               .token_ids = token_ids_of(group_idx),
                                               .payload = payload,
                                               .payload_bytes = payload.size(),
                                               .known = what_if_known(key, payload.size()),
                                               .tag = tag_of(move)});
  const u32 page = args_.pages->page_of(group_idx);
  if (page != kNoPage && (begun == store::Begun::begun || begun == store::Begun::known)) {
    args_.pages->set_wanted(page);
  }
  if (begun == store::Begun::known && take_known(ticket, key)) return store::Begun::begun;
  if (begun == store::Begun::known) return begun;
  if (begun != store::Begun::begun) {
    args_.residency->end_storing(ticket, {});
    return begun;
  }
  move = {.kind = MoveKind::store, .ticket = ticket};
  ++n_storing_;
  ++stats_->n_spills;
  stats_->bytes_spilled += payload.size();
  return begun;
}

// Takes a record of these tokens that is there. Where one is being written for another group, there
// is nothing to do but wait for it.
bool GroupIo::take_known(const Ticket& ticket, const store::Key& key) {
  TARN_ASSERT(args_.pages->page_of(ticket.group_idx) != kNoPage);  // others do not repeat
  const auto found = args_.store->find(key);
  const bool is_ours = found && what_if_known(key, args_.residency->frame(ticket.frame).size()) ==
                                    store::PutArgs::If::absent;
  args_.residency->end_storing(ticket, is_ours ? *found : store::RecordRef{});
  stats_->n_known += is_ours;
  return is_ours;
}

void GroupIo::take(const store::Event& event) {
  TARN_ASSERT(event.tag < moves_.size());
  Move& move = moves_[event.tag];
  TARN_ASSERT(move.kind != MoveKind::none);
  const bool is_load = move.kind != MoveKind::store;
  if (event.outcome == store::Outcome::returned) {
    TARN_ASSERT(move.lent);
    --n_lent_;
    move.lent = false;
  } else {
    --(is_load ? n_loading_ : n_storing_);
    move.lent = event.lent;
    move.ok = event.outcome == store::Outcome::ok;
    move.record = event.ref;
    move.is_foreign = event.outcome == store::Outcome::other_tokens;
    if (move.lent) ++n_lent_;
    n_read_ += is_load ? move.n_requests : 0;
    bytes_read_ += is_load ? move.n_bytes : 0;
  }
  is_load ? end_load(move) : end_store(move);
}

void GroupIo::end_look() {
  if (n_read_ == 0 && n_loading_ == 0) return;
  watch_.look(args_.clock->now_ns(), std::exchange(n_read_, u64{0}),
              std::exchange(bytes_read_, u64{0}), n_loading_, &stats_->reads);
}

// Ends a store once the disk has given the frame back; until then the group stays as it is. The
// record was not pinned until now: a full store may have dropped it already.
void GroupIo::end_store(Move& move) {
  if (move.lent) return;
  if (!args_.residency->is_current(move.ticket)) {
    args_.residency->give_back(move.ticket);  // the record has no owner: the store's LRU has it
  } else if (move.ok && args_.store->index().is_current(move.record)) {
    args_.residency->end_storing(move.ticket, move.record);
  } else {
    args_.residency->end_storing(move.ticket, {});
    ++stats_->n_spill_failures;
  }
  move = {};
}

void GroupIo::end_load(Move& move) {
  const bool is_part = move.kind == MoveKind::part;
  if (args_.residency->is_current(move.ticket)) {
    if (move.ok) {
      TARN_ASSERT(!move.lent);
      if (is_part) {
        stats_->bytes_gathered_used += copy_wanted(
            *gather_, args_.residency->shape(), move.group,
            reinterpret_cast<const u8*>(args_.residency->frame(move.ticket.frame).data()));
      }
      args_.residency->end_loading(move.ticket, is_part ? LoadEnd::abandoned : LoadEnd::whole);
      move = {};
      return;
    }
    gather_is_lost_ = gather_is_lost_ || is_part;
    // Under our key, and of other tokens: or we would ask for it again and again.
    if (move.is_foreign) args_.store->reject(move.record);
    args_.residency->end_loading(move.ticket, LoadEnd::lost);
    ++stats_->n_lost;
  }
  if (move.lent) return;
  args_.residency->give_back(move.ticket);
  move = {};
}

}  // namespace tarn::kv
