#include "runtime/method/method.h"
#include "runtime/method/pq/pq_reader.h"
#include "runtime/method/read/quest.h"
#include "runtime/method/read/window.h"

namespace tarn::method {

constexpr Method kMethods[] = {
    {.name = "full"},
    {.name = "pq",
     .reader_bytes = sizeof(PqReader),
     .make = make_reader<PqReader>,
     .region_bytes = PqReader::region_bytes,
     .check = PqReader::check,
     .training = &kPqTraining,
     .on_device = DeviceChoice::by_codes},
    {.name = "quest",
     .reader_bytes = sizeof(QuestReader),
     .make = make_reader<QuestReader>,
     .region_bytes = QuestReader::region_bytes},
    {.name = "window",
     .reader_bytes = sizeof(WindowReader),
     .make = make_reader<WindowReader>,
     .on_device = DeviceChoice::last},
};
static_assert(std::size(kMethods) == std::size(kSelectMethodNames));

const Method& method_of(const SelectConfig& config) {
  if (config.lab_method != nullptr) return *config.lab_method;
  return kMethods[static_cast<u64>(config.method)];
}

}  // namespace tarn::method
