// The documents of tarn ingest, what became of them, and the report about them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/client/daemon_client.h"
#include "tools/support/exit_code.h"

namespace tarn::tools {

struct Document {
  std::string path{}, name{};
  std::vector<u32> ids{};  // where they are computed here, and not by tarnd
  u64 n_tokens = 0, n_reused = 0, bytes_written = 0;
  f64 seconds = 0;
  std::optional<Failure> failure{};
};

// Adds a file under its own name, or `as`; of its passages each has a number, from 1. Throws
// Failure if another one has this name.
Document& add_document(std::vector<Document>& documents, const std::string& path,
                       const std::string& as, u64 number = 0);
// A failed document does not stop the others; it is told on standard error.
void fail_with(Document& document, ExitCode code, const std::string& why);
// Has a running tarnd read the file, into its own store.
void read_by_daemon(const DaemonClient& daemon, Document& document, bool replaces);

// One line about a document that was read.
void print(const Document& document);
// The sum of them, or all as JSON; `store_bytes`: of the store's file, if it is here. Throws the
// first failure.
void report(const std::vector<Document>& documents, bool json, std::optional<u64> store_bytes);

}  // namespace tarn::tools
