// GGUF files as an attacker would write them, each with the error that it must end in: status and a
// piece of the error line that no other refusal has by accident. Made in memory; none is committed.
//
// The hazard is the class of known faults that the file belongs to:
//   G1 sizes that overflow               G6 a vocabulary that does not fit the weights
//   G2 zeros that something divides by   G7 counts and lengths that ask for memory
//   G3 ranges beyond the file            G8 values that a careless reader asserts on
//   G4 a file that is cut while read     G9 names made to be slow
//   G5 arrays of another element type    T4 counts that look small once truncated
//   F  not the format at all             S  a valid file that would compute something else
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "platform/base/result.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_io.h"

namespace tarn::test {

struct HostileCase {
  const char* hazard = "";
  std::string name;
  std::function<Bytes()> make;
  Status status = Status::invalid_model;
  std::string error;  // in the line of format_error()
  MemoryIo::Script script{};
};

std::vector<HostileCase> hostile_corpus();

// What the two files of cases add to.
struct CorpusBuilder {
  using Bend = std::function<void(GgufImage&)>;
  // A valid tiny model of llama's architecture, bent.
  void add(const char* hazard, std::string name, Status status, std::string error, Bend bend);
  void add_bytes(const char* hazard, std::string name, Status status, std::string error,
                 std::function<Bytes()> make);
  void add_case(HostileCase hostile) { cases.push_back(std::move(hostile)); }

  std::vector<HostileCase> cases;
};
void add_byte_cases(CorpusBuilder& corpus);
void add_model_cases(CorpusBuilder& corpus);

}  // namespace tarn::test
