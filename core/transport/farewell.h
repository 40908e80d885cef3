#pragma once

#include <cstdint>
#include <vector>

#include "transport/descriptor.h"

namespace hvd {

// Closes connected stream sockets so that what was sent on them arrives. A socket that is closed while bytes
// of its peer lie unread resets the connection, and then whatever is still under way is lost. So each stream
// is ended first, what the peer sends is read and dropped, and the socket is closed when the peer's kernel
// has everything. After `limit_us` they are closed in any case.
void CloseDelivered(std::vector<Descriptor> sockets, int64_t limit_us);

}  // namespace hvd
