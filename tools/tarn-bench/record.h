// tarn-bench --record: appends one line of JSON per run to a file of tests/bench/records.
// tests/bench/records.py makes RECORDS.md from them.
#pragma once

#include <string>
#include <vector>

#include "tools/tarn-bench/output.h"

namespace tarn::bench {

// The commit that the program was built from, with "+" if files differed from it; the version where
// there was no git.
std::string build_commit();

// Date, commit, machine, the whole command line and all rows. Throws tools::Failure.
void append_record(const std::string& path, const std::string& command,
                   const std::vector<Row>& rows);

}  // namespace tarn::bench
