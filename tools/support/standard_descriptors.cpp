#include "tools/support/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

#include "tools/support/exit_code.h"

namespace tarn::tools {

void fill_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one, since those below it are open. Programs that are started
    // from here inherit it. Standard output cannot be written then: code_after_output() says so.
    const int flags = fd == STDERR_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", flags) != fd) _exit(kExitIo);
  }
}

}  // namespace tarn::tools
