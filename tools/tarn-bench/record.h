// tools/tarn-bench/record.h
//
// tarn-bench --record: one line of JSON a run, behind what a file of tests/bench/records has.
// tests/bench/records.py makes RECORDS.md of them.
#pragma once

#include <string>
#include <vector>

#include "tools/tarn-bench/output.h"

namespace tarn::bench {

// Date, commit, machine, the whole command line and all rows. Throws tools::Failure.
void append_record(const std::string& path, const std::string& command,
                   const std::vector<Row>& rows);

}  // namespace tarn::bench
