// tests/support/folders.h
//
// The tree that the tests were built from, and the folder that they were built in: absolute, no
// slash at the end. Only folders.cpp is compiled with them, so that equal trees share objects.
#pragma once

#include <string>

namespace tarn::test {

const std::string& source_folder();
const std::string& build_folder();

}  // namespace tarn::test
