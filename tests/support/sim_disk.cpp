#include "tests/support/sim_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::test {
namespace {

Unexpected refused(const IoOpenArgs& args, int error) {
  return fail({.status = Status::io_failed,
               .hint = "the simulated disk refuses the file",
               .detail = Detail(args.path),
               .figures = {{{"errno", static_cast<u64>(error)}}}});
}

void flip(std::vector<std::byte>& bytes, u64 bit_idx) {
  bytes[bit_idx / 8] ^= static_cast<std::byte>(1u << (bit_idx % 8));
}

}  // namespace

const char* sim_fault_name(SimFault fault) {
  constexpr const char* kNames[kSimFaults] = {
      "error",      "short_call",        "no_progress",   "slow",         "never",
      "lost_write", "misdirected_write", "flipped_write", "zeroed_write", "flipped_read"};
  return kNames[static_cast<u32>(fault)];
}

void SimDisk::put(std::vector<std::byte>& to, u64 offset, std::span<const std::byte> bytes) {
  if (to.size() < offset + bytes.size()) to.resize(offset + bytes.size());
  std::copy(bytes.begin(), bytes.end(), to.begin() + static_cast<std::ptrdiff_t>(offset));
}

void SimDisk::write_file(const std::string& path, std::span<const std::byte> bytes) {
  const u32 file_idx = names_.try_emplace(path, static_cast<u32>(files_.size())).first->second;
  if (file_idx == files_.size()) files_.emplace_back();
  File& file = files_[file_idx];
  file.now.assign(bytes.begin(), bytes.end());
  file.durable = file.now;
  std::erase_if(unsynced_, [&](const Write& write) {
    return write.file_idx == file_idx && write.done_idx > 0;
  });
}

std::vector<std::byte> SimDisk::file_bytes(const std::string& path) const {
  return files_[names_.at(path)].now;
}

void SimDisk::truncate_file(const std::string& path, u64 bytes) {
  File& file = files_[names_.at(path)];
  file.now.resize(bytes);
  file.durable.resize(bytes);
}

void SimDisk::flip_bit(const std::string& path, u64 bit_idx) {
  File& file = files_[names_.at(path)];
  flip(file.now, bit_idx);
  flip(file.durable, bit_idx);
}

void SimDisk::spoil_sector(const std::string& path, u64 offset) {
  TARN_ASSERT(offset % kSectorBytes == 0);
  files_[names_.at(path)].spoiled.insert(offset);
}

void SimDisk::power_loss(const SimPowerLoss& how) {
  Random random(how.seed);
  std::vector<u64> order;
  for (u64 i = 0; i < unsynced_.size(); ++i) {
    const bool kept = how.kept == SimKept::all ||
                      (how.kept == SimKept::some && random.below(2) == 0) ||
                      (how.kept == SimKept::by_mask && i < 64 && (how.mask >> i & 1) != 0);
    if (kept) order.push_back(i);
  }
  // Between two syncs a disk writes in the order that suits it.
  for (u64 i = order.size(); how.kept == SimKept::some && i > 1; --i) {
    std::swap(order[i - 1], order[random.below(i)]);
  }
  for (const u64 i : order) {
    const Write& write = unsynced_[i];
    const std::span<const std::byte> bytes(write.bytes);
    for (u64 begin = 0; begin < bytes.size(); begin += kTornBytes) {
      if (how.torn && random.below(2) == 0) continue;
      put(files_[write.file_idx].durable, write.offset + begin,
          bytes.subspan(begin, std::min(kTornBytes, bytes.size() - begin)));
    }
  }
  unsynced_.clear();
  for (File& file : files_) {
    file.now = file.durable;
    file.locked = false;
  }
}

bool SimDisk::can_befall(SimFault fault, const IoRequest& request) const {
  const bool is_write = request.op == IoOp::write;
  switch (fault) {
    case SimFault::error:
    case SimFault::slow:
    case SimFault::never:
      return true;
    case SimFault::short_call:
      return request.op != IoOp::sync_data && request.buffer.size() > kSectorBytes;
    case SimFault::no_progress:
    case SimFault::flipped_read:
      return request.op == IoOp::read || (fault == SimFault::no_progress && is_write);
    case SimFault::lost_write:
    case SimFault::misdirected_write:
    case SimFault::flipped_write:
    case SimFault::zeroed_write:
      return is_write;
  }
  return false;
}

SimDisk::Planned SimDisk::plan_call(const IoRequest& request) {
  const u64 call_idx = n_calls_++;
  Planned planned{.latency_ns = script.latency_ns_min +
                                random_.below(script.latency_ns_max - script.latency_ns_min + 1)};
  for (u32 i = 0; i < kSimFaults; ++i) {
    const auto fault = static_cast<SimFault>(i);
    const bool drawn = script.ppm[i] > 0 && random_.below(1'000'000) < script.ppm[i];
    if (!drawn || planned.has_fault || !can_befall(fault, request)) continue;
    planned.has_fault = true;
    planned.fault = fault;
    planned.error = script.errors[random_.below(script.errors.size())];
  }
  for (const SimScriptedFault& scripted : script.faults) {
    const bool hit =
        call_idx >= scripted.first_call && call_idx - scripted.first_call < scripted.n_calls;
    if (!hit || !can_befall(scripted.fault, request)) continue;
    planned.has_fault = true;
    planned.fault = scripted.fault;
    planned.error = scripted.error;
  }
  if (!planned.has_fault) return planned;
  count(planned.fault);
  if (planned.fault == SimFault::error) {
    ++error_hits_[planned.error];
    n_sync_failures_ += request.op == IoOp::sync_data;
  }
  return planned;
}

u64 SimDisk::used_bytes() const {
  u64 bytes = 0;
  for (const File& file : files_) bytes += file.now.size();
  return bytes;
}

u64 SimDisk::begin_write(u32 file_idx, u64 offset, std::span<const std::byte> bytes) {
  unsynced_.push_back({.id = next_write_id_,
                       .file_idx = file_idx,
                       .offset = offset,
                       .bytes = {bytes.begin(), bytes.end()}});
  ++n_write_events_;
  return next_write_id_++;
}

void SimDisk::drop_write(u64 id) {
  std::erase_if(unsynced_, [&](const Write& write) { return write.id == id; });
  ++n_write_events_;
}

// The medium takes a write; what goes wrong silently goes wrong here.
void SimDisk::finish_write(u64 id, const Planned& planned) {
  const auto found = std::find_if(unsynced_.begin(), unsynced_.end(),
                                  [&](const Write& write) { return write.id == id; });
  TARN_ASSERT(found != unsynced_.end());
  Write write = std::move(*found);
  unsynced_.erase(found);
  ++n_write_events_;
  bytes_written_ += write.bytes.size();
  File& file = files_[write.file_idx];
  if (planned.has_fault && planned.fault == SimFault::lost_write) return;
  if (planned.has_fault && planned.fault == SimFault::misdirected_write) {
    const u64 n_sectors = file.now.size() / kSectorBytes;
    const u64 write_sectors = write.bytes.size() / kSectorBytes;
    if (n_sectors > write_sectors) {
      write.offset = random_.below(n_sectors - write_sectors) * kSectorBytes;
    }
  }
  if (planned.has_fault && planned.fault == SimFault::flipped_write) {
    flip(write.bytes, random_.below(write.bytes.size() * 8));
  }
  if (planned.has_fault && planned.fault == SimFault::zeroed_write) {
    const u64 begin = random_.below(write.bytes.size()) / kSectorBytes * kSectorBytes;
    const u64 end = std::min(begin + kSectorBytes, write.bytes.size());
    std::fill(write.bytes.begin() + static_cast<std::ptrdiff_t>(begin),
              write.bytes.begin() + static_cast<std::ptrdiff_t>(end), std::byte{0});
  }
  put(file.now, write.offset, write.bytes);
  file.spoiled.erase(file.spoiled.lower_bound(write.offset),
                     file.spoiled.lower_bound(write.offset + write.bytes.size()));
  if (file.durable.size() < file.now.size()) file.durable.resize(file.now.size());
  write.done_idx = ++n_done_writes_;
  const auto on_their_way = std::find_if(unsynced_.begin(), unsynced_.end(),
                                         [](const Write& w) { return w.done_idx == 0; });
  unsynced_.insert(on_their_way, std::move(write));
}

i64 SimDisk::read(u32 file_idx, u64 offset, std::span<std::byte> buffer, const Planned& planned) {
  const std::vector<std::byte>& bytes = files_[file_idx].now;
  n_cut_reads_ += offset + buffer.size() > bytes.size();
  if (offset >= bytes.size()) return 0;
  const u64 n = std::min<u64>(buffer.size(), bytes.size() - offset);
  const std::set<u64>& spoiled = files_[file_idx].spoiled;
  const auto first = spoiled.lower_bound(offset / kSectorBytes * kSectorBytes);
  if (first != spoiled.end() && *first < offset + n) {
    ++n_spoiled_reads_;
    return -EIO;
  }
  std::memcpy(buffer.data(), bytes.data() + offset, n);
  bytes_read_ += n;
  if (planned.has_fault && planned.fault == SimFault::flipped_read) {
    const u64 bit_idx = random_.below(n * 8);
    buffer[bit_idx / 8] ^= static_cast<std::byte>(1u << (bit_idx % 8));
  }
  return static_cast<i64>(n);
}

// Everything that was done when the sync was asked for becomes durable, and of what was done since
// a part, in order.
void SimDisk::sync(u32 file_idx, u64 writes_before) {
  ++n_syncs_;
  ++n_write_events_;
  const u64 kept_until = writes_before + random_.below(n_done_writes_ - writes_before + 1);
  std::erase_if(unsynced_, [&](const Write& write) {
    const bool is_kept = write.done_idx > 0 && write.done_idx <= kept_until;
    if (!is_kept || write.file_idx != file_idx) return false;
    put(files_[file_idx].durable, write.offset, write.bytes);
    return true;
  });
}

// Fails a sync. Afterwards nothing is known: a write may be durable, or is lost at the next power
// loss although it can be read until then, and no later sync will save it.
void SimDisk::fail_sync(u32 file_idx) {
  ++n_write_events_;
  std::erase_if(unsynced_, [&](const Write& write) {
    if (write.done_idx == 0 || write.file_idx != file_idx) return false;
    if (random_.below(2) == 0) put(files_[file_idx].durable, write.offset, write.bytes);
    return true;
  });
}

SimIo::~SimIo() {
  for (const Call& call : calls_) {
    if (call.write_id == 0) continue;
    if (disk_.random_.below(2) == 0) {
      disk_.finish_write(call.write_id, {});
    } else {
      disk_.drop_write(call.write_id);
    }
  }
  for (const Open& open : files_) {
    if (open.is_open && open.exclusive) disk_.files_[open.file_idx].locked = false;
  }
}

const SimIo::Open& SimIo::entry(IoFile file) const {
  TARN_ASSERT(file.index >= 0 && static_cast<u32>(file.index) < files_.size());
  TARN_ASSERT(files_[static_cast<u32>(file.index)].is_open);
  return files_[static_cast<u32>(file.index)];
}

Result<IoFile> SimIo::open(const IoOpenArgs& args) {
  u32 index = 0;
  while (index < kIoFilesMax && files_[index].is_open) ++index;
  if (index == kIoFilesMax) return refused(args, EMFILE);
  if (!disk_.has_file(args.path)) {
    if (!args.create) return refused(args, ENOENT);
    if (disk_.script.read_only) return refused(args, EROFS);
    disk_.write_file(args.path, {});
  } else if (args.write && disk_.script.read_only) {
    return refused(args, EROFS);
  }
  const u32 file_idx = disk_.names_.at(args.path);
  if (args.exclusive && disk_.files_[file_idx].locked) return refused(args, EWOULDBLOCK);
  if (args.exclusive) disk_.files_[file_idx].locked = true;
  files_[index] = {.file_idx = file_idx,
                   .is_open = true,
                   .write = args.write,
                   .direct = args.direct,
                   .exclusive = args.exclusive};
  return IoFile{static_cast<i32>(index)};
}

Result<u64> SimIo::size_bytes(IoFile file) {
  return u64{disk_.files_[entry(file).file_idx].now.size()};
}

Result<void> SimIo::allocate(IoFile file, u64 bytes) {
  SimDisk::File& data = disk_.files_[entry(file).file_idx];
  const u64 others_bytes = disk_.used_bytes() - data.now.size();
  int error = 0;
  if (bytes > disk_.script.capacity_bytes - std::min(others_bytes, disk_.script.capacity_bytes)) {
    error = ENOSPC;
  }
  if (!entry(file).write) error = EBADF;
  if (disk_.script.read_only) error = EROFS;
  if (error != 0) {
    return fail({.status = Status::io_failed,
                 .hint = "the simulated disk has no room",
                 .figures = {{{"errno", static_cast<u64>(error)}, {"bytes", bytes}}}});
  }
  data.now.resize(bytes);
  data.durable.resize(bytes);
  return {};
}

void SimIo::close(IoFile file) {
  const Open& open = entry(file);
  for (const Call& call : calls_) TARN_ASSERT(call.transfer.request.file.index != file.index);
  if (open.exclusive) disk_.files_[open.file_idx].locked = false;
  files_[static_cast<u32>(file.index)] = {};
}

bool SimIo::register_buffers(std::span<const std::span<std::byte>> buffers) {
  TARN_ASSERT(n_in_flight() == 0);
  return !buffers.empty();
}

bool SimIo::submit(const IoRequest& request) {
  if (n_in_flight() == in_flight_max_) return false;
  const Open& open = entry(request.file);
  Call call{.transfer = {.request = request, .fd = request.file.index, .direct = open.direct}};
  auto immediate = call.transfer.without_a_call();
  if (!immediate && request.op == IoOp::write && !open.write) immediate = -EBADF;
  if (immediate) {
    done_.push_back({.tag = request.tag, .result = *immediate});
    return true;
  }
  if (request.op == IoOp::read) {
    std::fill(request.buffer.begin(), request.buffer.end(), std::byte{0xA5});
  }
  start(call);
  return true;
}

void SimIo::start(Call call) {
  const IoRequest& request = call.transfer.request;
  call.planned = disk_.plan_call(request);
  call.due_ns = clock_.now_ns() + call.planned.latency_ns;
  if (call.planned.has_fault && call.planned.fault == SimFault::slow) call.due_ns += kSlowNs;
  if (call.planned.has_fault && call.planned.fault == SimFault::never) call.due_ns = kNeverNs;
  call.writes_before = disk_.n_done_writes_;
  if (request.op == IoOp::write) {
    call.write_id = disk_.begin_write(
        entry(request.file).file_idx, call.transfer.next_offset(),
        request.buffer.subspan(call.transfer.done_bytes, call.transfer.next_bytes()));
  }
  calls_.push_back(call);
}

i64 SimIo::perform_write(const Call& call) {
  auto& unsynced = disk_.unsynced_;
  const auto found = std::find_if(unsynced.begin(), unsynced.end(),
                                  [&](const SimDisk::Write& w) { return w.id == call.write_id; });
  TARN_ASSERT(found != unsynced.end());
  const SimDisk::Planned& planned = call.planned;
  const auto fault_is = [&](SimFault fault) { return planned.has_fault && planned.fault == fault; };
  // The buffer belongs to the backend until now. But who was told that a put has stalled may change
  // it: the disk then gets what it holds at last.
  if (fault_is(SimFault::never)) {
    std::copy_n(call.transfer.next_data(), found->bytes.size(), found->bytes.begin());
  }
  TARN_ASSERT(std::equal(found->bytes.begin(), found->bytes.end(), call.transfer.next_data()));
  const u64 end = found->offset + found->bytes.size();
  const u64 size = disk_.files_[found->file_idx].now.size();
  i64 answer = 0;
  if (fault_is(SimFault::error)) answer = -planned.error;
  if (end > size && disk_.used_bytes() + (end - size) > disk_.script.capacity_bytes) {
    answer = -ENOSPC;
  }
  if (disk_.script.read_only) answer = -EROFS;
  if (answer < 0 || fault_is(SimFault::no_progress)) {
    // Who is told of an error knows nothing about the bytes.
    const u64 n_torn = disk_.random_.below(found->bytes.size() / kTornBytes + 1);
    if (answer < 0 && !disk_.script.read_only && n_torn > 0 && end <= size) {
      found->bytes.resize(n_torn * kTornBytes);
      disk_.finish_write(call.write_id, {});
    } else {
      disk_.drop_write(call.write_id);
    }
    return answer;
  }
  if (fault_is(SimFault::short_call)) {
    found->bytes.resize(align_up(found->bytes.size() / 2, kSectorBytes));
  }
  answer = static_cast<i64>(found->bytes.size());
  disk_.finish_write(call.write_id, planned);
  return answer;
}

i64 SimIo::perform(const Call& call) {
  const u32 file_idx = entry(call.transfer.request.file).file_idx;
  const auto fault_is = [&](SimFault fault) {
    return call.planned.has_fault && call.planned.fault == fault;
  };
  const bool failed = fault_is(SimFault::error);
  switch (call.transfer.request.op) {
    case IoOp::write:
      return perform_write(call);
    case IoOp::sync_data:
      if (failed) disk_.fail_sync(file_idx);
      if (!failed) disk_.sync(file_idx, call.writes_before);
      return failed ? -call.planned.error : 0;
    case IoOp::read:
      break;
  }
  if (failed) return -call.planned.error;
  if (fault_is(SimFault::no_progress)) return 0;
  u64 bytes = call.transfer.next_bytes();
  if (fault_is(SimFault::short_call)) bytes = align_up(bytes / 2, kSectorBytes);
  return disk_.read(file_idx, call.transfer.next_offset(), {call.transfer.next_data(), bytes},
                    call.planned);
}

bool SimIo::run_due(u64 until_ns) {
  const auto first =
      std::min_element(calls_.begin(), calls_.end(),
                       [](const Call& a, const Call& b) { return a.due_ns < b.due_ns; });
  if (first == calls_.end() || first->due_ns == kNeverNs || first->due_ns > until_ns) return false;
  if (first->due_ns > clock_.now_ns()) clock_.advance_ns(first->due_ns - clock_.now_ns());
  Call call = *first;
  calls_.erase(first);
  const auto result = call.transfer.take(perform(call));
  if (result) {
    done_.push_back({.tag = call.transfer.request.tag, .result = *result});
  } else {
    start(call);
  }
  return true;
}

void SimIo::let_stuck_go() {
  for (Call& call : calls_) {
    if (call.due_ns == kNeverNs) call.due_ns = clock_.now_ns();
  }
}

void SimIo::get_stuck() {
  for (Call& call : calls_) call.due_ns = kNeverNs;
}

u32 SimIo::reap(std::span<IoCompletion> completions, u32 n_min, u64 timeout_ns) {
  const u64 room = std::min<u64>(completions.size(), n_in_flight());
  const u64 n_wanted = std::min<u64>(n_min, room);
  const u64 begin_ns = clock_.now_ns();
  const u64 until_ns = timeout_ns < kNeverNs - begin_ns ? begin_ns + timeout_ns : kNeverNs;
  if (timeout_ns == 0) clock_.advance_ns(kLookNs);
  while (run_due(clock_.now_ns())) {
  }
  while (done_.size() < n_wanted && run_due(until_ns)) {
  }
  if (done_.size() < n_wanted) {
    TARN_ASSERT(until_ns != kNeverNs);  // it would hang: all that is left never ends
    if (until_ns > clock_.now_ns()) clock_.advance_ns(until_ns - clock_.now_ns());
  }
  u32 n = 0;
  for (; n < room && !done_.empty(); ++n) {
    completions[n] = done_.front();
    done_.pop_front();
  }
  return n;
}

}  // namespace tarn::test
