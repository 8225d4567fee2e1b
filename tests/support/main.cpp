// The test programs' main: doctest's, and 77 where nothing could run.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "tests/support/skip.h"

namespace tarn::test {
namespace {
unsigned n_skipped = 0;
unsigned n_run = 0;

// doctest does not hand its counts to main; a listener sees every case begin.
struct CaseCounter : doctest::IReporter {
  explicit CaseCounter(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData&) override { ++n_run; }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("case_counter", 1, CaseCounter);
}  // namespace

void note_skipped(const char* why) {
  ++n_skipped;
  std::printf("skipped: %s\n", why);
}

}  // namespace tarn::test

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int exit_code = context.run();
  const bool all_skipped = tarn::test::n_skipped > 0 && tarn::test::n_skipped >= tarn::test::n_run;
  return exit_code == 0 && all_skipped ? 77 : exit_code;
}
