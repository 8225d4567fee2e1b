#include "tools/support/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

#include "tools/support/exit_code.h"

namespace tarn::tools {

void fill_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one, since those below it are open. Programs that are started
    // from here inherit it.
    const int flags = fd == STDIN_FILENO ? O_RDONLY : O_WRONLY;
    if (open("/dev/null", flags) != fd) _exit(kExitIo);
  }
}

}  // namespace tarn::tools
