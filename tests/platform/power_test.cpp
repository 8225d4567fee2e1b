// Goal    Power mode, clocks, heat and throttling are read as each kind of machine shows them, and
//         what it does not show stays unknown.
// Method  Fixture trees of /sys: a Jetson, an x86 server, a virtual machine, broken files.
#include "platform/power/power.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace tarn::power_test {
namespace {

struct File {
  std::string path, text;
};

std::string cpu_file(int cpu, const std::string& name) {
  return "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpufreq/" + name;
}
std::string thermal(const std::string& name) { return "sys/class/thermal/" + name; }

// As an Orin Nano at 15 W shows them, which is too warm.
std::vector<File> jetson() {
  return {{"var/lib/nvpmodel/status", "pmode:0000 fmode:quiet\n"},
          {"etc/nvpmodel.conf",
           "< PARAM TYPE=FILE NAME=CPU_ONLINE >\n"
           "CORE_0 /sys/devices/system/cpu/cpu0/online\n"
           "# < POWER_MODEL ID=0 NAME=COMMENT >\n"
           "< POWER_MODEL ID=0 NAME=15W >\n"
           "CPU_ONLINE CORE_0 1\n"
           "< POWER_MODEL ID=1 NAME=25W >\n"
           "< POWER_MODEL ID=10 NAME=TEN >\n"
           "< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n"},
          {cpu_file(0, "scaling_governor"), "schedutil\n"},
          {cpu_file(0, "scaling_cur_freq"), "1510400\n"},
          {cpu_file(0, "cpuinfo_max_freq"), "1728000\n"},
          {cpu_file(1, "scaling_cur_freq"), "729600\n"},
          {cpu_file(1, "cpuinfo_max_freq"), "1728000\n"},
          {"sys/class/devfreq/15340000.vic/cur_freq", "115200000\n"},
          {"sys/class/devfreq/17000000.gpu/cur_freq", "306000000\n"},
          {"sys/class/devfreq/17000000.gpu/max_freq", "612000000\n"},
          {thermal("thermal_zone0/type"), "cpu-thermal\n"},
          {thermal("thermal_zone0/temp"), "71218\n"},
          {thermal("thermal_zone1/type"), "gpu-thermal\n"},
          {thermal("thermal_zone1/temp"), "97500\n"},
          {thermal("thermal_zone2/type"), "cv0-thermal\n"},  // no sensor at work: no temp
          {thermal("thermal_zone3/type"), "tj-thermal\n"},
          {thermal("thermal_zone3/temp"), "97406\n"},
          {thermal("cooling_device0/type"), "pwm-fan\n"},
          {thermal("cooling_device0/cur_state"), "3\n"},
          {thermal("cooling_device1/type"), "cpu-throttle-alert\n"},
          {thermal("cooling_device1/cur_state"), "0\n"},
          {thermal("cooling_device2/type"), "gpu-throttle-alert\n"},
          {thermal("cooling_device2/cur_state"), "1\n"},
          {thermal("cooling_device3/type"), "thermal-devfreq-0\n"},
          {thermal("cooling_device3/cur_state"), "2\n"}};
}

std::vector<File> with(std::vector<File> files, const std::vector<File>& more) {
  for (const File& file : more) {
    std::erase_if(files, [&](const File& old) { return old.path == file.path; });
    files.push_back(file);
  }
  return files;
}

PowerState read(const std::vector<File>& files) {
  const test::TempDir dir("tarn_power");
  namespace fs = std::filesystem;
  for (const File& file : files) {
    const fs::path path = fs::path(dir.path()) / file.path;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << file.text;
  }
  return power_state_under(dir.path().c_str());
}

TEST_CASE("a Jetson: mode by name, its clocks, the hottest zone, what slows down") {
  const PowerState state = read(jetson());
  CHECK(std::string(state.mode.data()) == "15W");
  CHECK(state.cpu_mhz == 729);
  CHECK(state.cpu_mhz_max == 1728);
  CHECK(state.gpu_mhz == 306);
  CHECK(state.gpu_mhz_max == 612);
  CHECK(state.has_temperature);
  CHECK(state.hottest_millidegrees == 97500);
  CHECK(std::string(state.hottest_zone.data()) == "gpu-thermal");
  CHECK(state.n_throttling == 2);  // no fan, and none at rest
  CHECK(std::string(state.throttling_first.data()) == "gpu-throttle-alert");
}

TEST_CASE("the mode is read as far as the machine names it") {
  struct Case {
    const char* name;
    std::vector<File> files;
    const char* mode;
  };
  const Case cases[] = {
      {"another one", with(jetson(), {{"var/lib/nvpmodel/status", "pmode:0002 fmode:cool\n"}}),
       "MAXN_SUPER"},
      {"of two digits", with(jetson(), {{"var/lib/nvpmodel/status", "pmode:0010\n"}}), "TEN"},
      {"without a name", with(jetson(), {{"var/lib/nvpmodel/status", "pmode:0007\n"}}), "mode 7"},
      {"no table of names", {{"var/lib/nvpmodel/status", "pmode:0001\n"}}, "mode 1"},
      {"no number", with(jetson(), {{"var/lib/nvpmodel/status", "pmode:\n"}}), "schedutil"},
      {"a governor", {{cpu_file(0, "scaling_governor"), "performance\n"}}, "performance"},
      {"a long one",
       {{cpu_file(0, "scaling_governor"), std::string(200, 'x')}},
       "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
      {"nothing", {}, ""},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(std::string(read(c.files).mode.data()) == c.mode);
  }
}

TEST_CASE("what is not shown, or makes no sense, is unknown") {
  const PowerState none = read({});
  CHECK(none.cpu_mhz == 0);
  CHECK(none.gpu_mhz == 0);
  CHECK_FALSE(none.has_temperature);
  CHECK(none.n_throttling == 0);
  const PowerState odd = read({{thermal("thermal_zone0/temp"), "-12500\n"},
                               {thermal("thermal_zone1/temp"), "99999999999999999999999\n"},
                               {thermal("thermal_zone2/temp"), "warm\n"},
                               {thermal("thermal_zone3/temp"), "-40000\n"},
                               {cpu_file(0, "scaling_cur_freq"), "<unknown>\n"},
                               {thermal("cooling_device0/type"), "intel_powerclamp\n"},
                               {thermal("cooling_device0/cur_state"), "-1\n"},
                               {thermal("cooling_device1/type"), "TCC Offset\n"},
                               {thermal("cooling_device1/cur_state"), "5\n"}});
  CHECK(odd.has_temperature);
  CHECK(odd.hottest_millidegrees == -12500);
  CHECK(std::string(odd.hottest_zone.data()).empty());
  CHECK(odd.cpu_mhz == 0);
  CHECK(odd.n_throttling == 0);
}

TEST_CASE("this machine can be asked") {
  const PowerState state = power_state();
  CHECK(state.cpu_mhz <= std::max(state.cpu_mhz_max, state.cpu_mhz));
  if (state.has_temperature) CHECK(state.hottest_millidegrees < 200'000);
}

}  // namespace
}  // namespace tarn::power_test
