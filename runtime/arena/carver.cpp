#include "runtime/arena/carver.h"

#include "platform/base/assert.h"

namespace tarn {

std::span<std::byte> Carver::piece(const char* name, u64 n_rows, Checked row_bytes, u64 alignment) {
  const Checked begin = end_.aligned_up(alignment), bytes = row_bytes * n_rows;
  end_ = begin + bytes;
  if (!carves_) {
    note(name, n_rows, row_bytes.get().value_or(0));
    return {};
  }
  TARN_ASSERT(end_.at_most(region_.size()));
  return region_.subspan(*begin.get(), *bytes.get());
}

void Carver::note(const char* name, u64 n_rows, u64 row_bytes) {
  if (n_rows == 0 || row_bytes == 0) return;
  FixedText<sizeof(Region::formula)> term;
  const bool goes_on = n_rows == n_rows_;
  if (!goes_on && n_rows_ > 1) term << ")";
  if (n_rows_ != 0) term << " + ";
  if (!goes_on && n_rows > 1) term << n_rows << " x (";
  term << name << " " << row_bytes;
  if (text_.view().size() + term.view().size() + kEndBytes > sizeof(Region::formula)) {
    others_bytes_ += n_rows * row_bytes;
    return;
  }
  text_ << term.view();
  n_rows_ = n_rows;
}

FixedText<sizeof(Region::formula)> Carver::formula() const {
  FixedText<sizeof(Region::formula)> text = text_;
  if (n_rows_ > 1) text << ")";
  if (n_rows_ == 0) return text << "none";
  if (others_bytes_ > 0) text << " + others " << others_bytes_;
  return text << " B";
}

}  // namespace tarn
