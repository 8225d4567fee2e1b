// Goal    no text given as configuration ends the process, hangs it or passes as something it is
//         not.
// Method  libFuzzer; what is accepted must be valid by itself and come out the same a second time;
//         what is refused must say why.
#include <cstring>
#include <utility>

#include "runtime/config/config.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using tarn::test::require;

// Every field of `one` has the bytes of the same field of `other`.
struct Equal {
  const tarn::Config& one;
  const tarn::Config& other;
  template <class Field, class... Rest>
  void operator()(const char*, const Field& field, const Rest&...) {
    const auto offset = reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&one);
    const char* twin = reinterpret_cast<const char*>(&other) + offset;
    require(std::memcmp(&field, twin, sizeof field) == 0);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const tarn::u8* data, std::size_t n_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), n_bytes);
  tarn::Origins origins{};
  const tarn::Result<tarn::Config> config = tarn::config_from_toml(text, tarn::Config{}, &origins);
  if (config) {
    require(tarn::config_validate(*config).has_value());
    const tarn::Result<tarn::Config> again = tarn::config_from_toml(text, *config);
    require(again.has_value());
    std::as_const(*config).visit(Equal{.one = *config, .other = *again});
  } else {
    require(config.error().status == tarn::Status::invalid_config);
    require(std::strlen(config.error().hint) > 0);
  }
  const tarn::Result<tarn::u64> bytes = tarn::parse_bytes(text);
  require(bytes.has_value() || bytes.error().status == tarn::Status::invalid_config);
  return 0;
}
