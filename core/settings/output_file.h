#pragma once

#include <string>

#include "base/status.h"

namespace hvd {

// Opens the file at `path` for writing, empty; the caller owns *fd. Never waits, and never empties
// anything but a file that is the caller's to empty. Refused is what another user may have put
// there in a folder where everybody may write: a symbolic link, a file with a second name (hard
// link), a file that belongs to neither this user nor the owner of the folder; and what is no
// regular file, such as a named pipe. The error begins with `what`, such as "HOROVOD_AUTOTUNE_LOG".
Status OpenOutputFile(const std::string& path, const std::string& what, int* fd);

}  // namespace hvd
