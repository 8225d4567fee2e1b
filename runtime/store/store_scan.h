// Opens the store. It locks the file, and reads its label or writes a new one. Then it reads the
// first sector of every frame, compares the records found, and erases old versions of manifests.
// go_on() and take() do this in slices. No content of the file can stop it, only a failing disk:
// then the store's health tells.
//
// An unreadable sector costs only its own content: one of two labels is written again, a record
// with a lost head is absent. kUnreadInARowMax consecutive unreadable heads count as a failed disk.
//
// It uses the operations' slots, and their memory for heads, before there are any operations.
#pragma once

#include "runtime/store/store_parts.h"

namespace tarn::store {

inline constexpr u32 kUnreadInARowMax = 64;

class StoreScan {
 public:
  explicit StoreScan(StoreParts& parts) : parts_(parts) {}

  // `sectors`: room for the labels. `entropy`: for the secret of a new file.
  void begin(std::span<std::byte> sectors, const std::array<u8, 32>& entropy);
  void go_on();
  void take(const IoCompletion& completion);
  bool is_done() const { return stage_ == Stage::done; }
  u64 deadline_ns() const { return deadline_ns_; }

  // The youngest head's values, after the scan.
  u64 youngest_generation() const { return youngest_generation_; }
  u64 budget_left_bytes() const { return budget_left_bytes_; }

 private:
  enum class Stage : u8 {
    locking,
    labels,
    each_label,
    new_labels,
    label_sync,
    heads,
    weigh,
    stale_sync,
    stale,
    done
  };

  void try_lock();
  void read_next_label();
  void take_labels(i64 result);
  void take_label(i64 result);
  void weigh_labels();
  void begin_new_file();
  void write_label();
  void take_written(i64 result);
  void read_heads();
  void take_head(Slot& slot, i64 result);
  void weigh_more();
  void begin_stale();
  void erase_stale();
  void take_stale(Slot& slot, i64 result);
  void finish();
  void fail(const Error& error);
  bool submit(const IoRequest& request);

  StoreParts& parts_;
  Stage stage_ = Stage::locking;
  std::span<std::byte> labels_{};  // both sectors; at last zeros, for stale manifests
  std::array<u8, 32> entropy_{};
  u64 began_at_ns_ = 0;
  u64 deadline_ns_ = 0;
  bool file_is_new_ = false;
  u64 next_label_ = 0;
  std::array<bool, kLabels> label_is_read_{};
  u32 n_unread_in_a_row_ = 0;
  u32 next_head_ = 0, n_heads_in_flight_ = 0, next_weighed_ = 0;
  u64 youngest_generation_ = 0;
  u64 budget_left_bytes_ = 0;
  u64 cursor_generation_ = 0;  // of the youngest record that is no manifest; and its place
  u32 cursor_frame_ = 0;
};

}  // namespace tarn::store
