#include "tools/gpu_check/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "tools/gpu_check/process.h"

namespace tarn::gpu_check {
namespace {

namespace fs = std::filesystem;

constexpr f64 kLimitS = 10;
constexpr u64 kTextBytesMax = 400;

// In plain ASCII and in one line.
std::string tidied(std::string text) {
  text = text.substr(0, kTextBytesMax);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ';');
  for (char& c : text) c = c < ' ' || c > '~' ? ' ' : c;
  return text;
}

void add(rapidjson::Document& document, const std::string& key, const std::string& text) {
  if (text.empty()) return;
  auto& allocator = document.GetAllocator();
  document.AddMember(rapidjson::Value(key.c_str(), allocator),
                     rapidjson::Value(tidied(text).c_str(), allocator), allocator);
}

// What a program says, if it is here and ends well.
std::string said_by(const char* program, const std::vector<std::string>& arguments) {
  const fs::path path = find_program(program);
  if (path.empty()) return "";
  std::vector<std::string> words = {path.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const Outcome outcome = run_command({.arguments = words, .library_dir = {}, .limit_s = kLimitS});
  return outcome.ending == Ending::exited && outcome.code == 0 ? outcome.out : "";
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

fs::path find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream dirs(path != nullptr ? path : "");
  std::string dir;
  while (std::getline(dirs, dir, ':')) {
    fs::path file = fs::path(dir) / name;
    if (!dir.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

rapidjson::Document look_at_machine() {
  rapidjson::Document document;
  document.SetObject();
  add(document, "nvidia_smi",
      said_by("nvidia-smi",
              {"--query-gpu=driver_version,pstate,clocks.sm,clocks.mem,temperature.gpu,power.draw",
               "--format=csv,noheader"}));
  add(document, "nvpmodel", said_by("nvpmodel", {"-q"}));
  add(document, "l4t", first_line("/etc/nv_tegra_release"));
  std::error_code none;
  for (const fs::directory_entry& device : fs::directory_iterator("/sys/class/devfreq", none)) {
    add(document, "devfreq " + device.path().filename().string(),
        first_line(device.path() / "cur_freq"));
  }
  return document;
}

}  // namespace tarn::gpu_check
