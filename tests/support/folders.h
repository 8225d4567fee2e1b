// The source tree of the tests, and their build folder: absolute, without a slash at the end. Where
// a test was brought to another machine, the folder that it lies in is its build folder. Only
// folders.cpp is compiled with these paths, so that equal trees share objects.
#pragma once

#include <string>

namespace tarn::test {

const std::string& source_folder();
const std::string& build_folder();

}  // namespace tarn::test
