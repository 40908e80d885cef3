#include "base/status.h"

#include <cerrno>
#include <cstring>

namespace hvd {

Status Status::Errno(const std::string& what) {
  const int error = errno;
  return {Code::kUnavailable, what + ": " + std::strerror(error)};
}

}  // namespace hvd
