// Descriptors 0, 1 and 2 belong to standard input, output and error in every program. One that a
// parent closed would become the first file, socket or event that the program opens.
#pragma once

namespace tarn::tools {

// Opens /dev/null where one of them is closed: input ends at once, a write to standard output fails
// as it did before, errors go nowhere. The first call of main(), before a thread or a file. Without
// /dev/null the program ends with kExitIo.
void fill_standard_descriptors();

}  // namespace tarn::tools
