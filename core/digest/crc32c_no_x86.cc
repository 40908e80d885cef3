#include "digest/crc32c.h"

namespace hvd::crc32c {

Function Hardware() { return nullptr; }

}  // namespace hvd::crc32c
