// The formats of results besides the table: made from a list of JSON objects with equal keys.
#pragma once

#include <string>

#include "tools/tarn-bench/runner.h"

namespace tarn::bench {

// llama-bench's CSV: a line of the keys, then a line an object. Every value is quoted; null is
// empty, and lists have no column.
std::string to_csv(const std::string& json_list);
// The objects, a line each.
std::string to_json_lines(const std::string& json_list);

// Results in every form that an option may ask for.
struct Forms {
  std::string table, json_list;
  // Returns the one of -o: md, json, jsonl or csv; "" for none.
  std::string in(const std::string& format) const;
};

// Prints what -o and -oe ask for.
void print_forms(const Options& options, const Forms& forms);

// Returns what printf would print, at most a line of 400 bytes.
[[gnu::format(printf, 1, 2)]] std::string text_of(const char* format, ...);

}  // namespace tarn::bench
