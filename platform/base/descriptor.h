// Keeps our files away from the numbers of the standard streams. A host may run with descriptors 0
// to 2 closed; the next file that is opened gets one of these numbers, and what the host reads and
// prints by them would go through it.
#pragma once

namespace tarn {

// Returns `fd`, or a copy of it above 2 where it is one of 0 to 2, and closes it then. Returns -1
// for -1, and where there is no copy; errno says why.
int above_standard(int fd);

}  // namespace tarn
