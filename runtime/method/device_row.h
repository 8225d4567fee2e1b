// runtime/method/device_row.h
//
// A row that chooses its slots on a device: what the host tells of it.
#pragma once

#include "platform/base/types.h"
#include "runtime/method/segments.h"

namespace tarn::method {

struct DeviceRow {
  Segments segments;
  u32 k;  // of the middle
  // Keys [n_coded, end) of the middle get codes in the row's step; n_counted of them had one before
  // a cut.
  u32 n_coded, n_counted;
};

}  // namespace tarn::method
