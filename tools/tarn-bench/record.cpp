#include "tools/tarn-bench/record.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "platform/cpu/topology.h"
#include "platform/power/power.h"
#include "tools/support/exit_code.h"
#include "tools/support/utc.h"

namespace tarn::bench {
namespace {

// As the run left the board: a mode or heat that slows it down shows at the end.
void write_power(const PowerState& power, RowWriter& w) {
  const auto number = [&w](const char* key, u32 value) {
    w.Key(key);
    w.Uint(value);
  };
  w.Key("power");
  w.StartObject();
  w.Key("mode");
  w.String(power.mode.data());
  number("cpu_mhz", power.cpu_mhz);
  number("cpu_mhz_max", power.cpu_mhz_max);
  number("gpu_mhz", power.gpu_mhz);
  number("gpu_mhz_max", power.gpu_mhz_max);
  w.Key("hottest_zone");
  w.String(power.hottest_zone.data());
  w.Key("hottest_celsius");
  w.Double(power.has_temperature ? power.hottest_millidegrees * 1e-3 : NAN);
  number("throttling", power.n_throttling);
  w.EndObject();
}

}  // namespace

std::string build_commit() {
  const std::string commit = TARN_COMMIT;
  return commit.empty() ? TARN_VERSION : commit;
}

void append_record(const std::string& path, const std::string& command,
                   const std::vector<Row>& rows) {
  rapidjson::StringBuffer buffer;
  RowWriter w(buffer);
  const auto text = [&w](const char* key, const std::string& value) {
    w.Key(key);
    w.String(value.c_str(), static_cast<rapidjson::SizeType>(value.size()));
  };
  f64 bandwidth = 0;
  for (const Row& row : rows) bandwidth = std::max(bandwidth, row.bandwidth_bytes_per_s);
  w.StartObject();
  text("source", "tarn-bench");
  text("date", tools::utc_now());
  text("commit", TARN_COMMIT);
  text("command", command);
  w.Key("machine");
  w.StartObject();
  text("cpu", rows.front().cpu_info);
  text("gpu", rows.front().gpu_info);
  w.Key("cores");
  w.Uint(cpu_topology().n_physical_cores);
  w.Key("memory_bytes");
  w.Uint64(static_cast<u64>(sysconf(_SC_PHYS_PAGES)) * static_cast<u64>(sysconf(_SC_PAGESIZE)));
  w.Key("bandwidth_gb_per_s");
  w.Double(bandwidth > 0 ? bandwidth * 1e-9 : NAN);
  write_power(power_state(), w);
  w.EndObject();
  w.Key("rows");
  w.StartArray();
  for (const Row& row : rows) write_row(row, w);
  w.EndArray();
  w.EndObject();
  std::ofstream file(path, std::ios::app | std::ios::binary);
  file << buffer.GetString() << '\n' << std::flush;
  if (!file) throw tools::Failure{tools::kExitIo, "cannot write " + path};
}

}  // namespace tarn::bench
