#include "tests/runtime/model/hostile_corpus.h"

#include "tests/support/tiny_model.h"

namespace tarn::test {

void CorpusBuilder::add(const char* hazard, std::string name, Status status, std::string error,
                        Bend bend) {
  add_bytes(hazard, std::move(name), status, std::move(error), [bend = std::move(bend)] {
    GgufImage image = tiny_model({});
    bend(image);
    return image.bytes();
  });
}

void CorpusBuilder::add_bytes(const char* hazard, std::string name, Status status,
                              std::string error, std::function<Bytes()> make) {
  cases.push_back({hazard, std::move(name), std::move(make), status, std::move(error), {}});
}

std::vector<HostileCase> hostile_corpus() {
  CorpusBuilder corpus;
  add_byte_cases(corpus);
  add_model_cases(corpus);
  return std::move(corpus.cases);
}

}  // namespace tarn::test
