#include "runtime/progress/payload.h"

#include <algorithm>

namespace hvd {

size_t PayloadBytes(const negotiate::Request& request) {
  size_t bytes = 0;
  for (const negotiate::TensorMeta& tensor : request.tensors)
    bytes += PayloadBytes(negotiate::BytesOf(tensor));
  return bytes;
}

// What lies between two tensors is zero: nothing of this process's memory travels.
void Pack(const Follower& follower, size_t bytes, std::vector<std::byte>* payload) {
  payload->assign(bytes, std::byte{0});
  auto to = payload->begin();
  follower.ForEachOfNext([&](const Handle& handle) {
    for (const TensorBuffer& buffer : handle.entry.buffers) {
      std::copy_n(buffer.input, buffer.input_bytes, to);
      to += static_cast<std::ptrdiff_t>(PayloadBytes(buffer.input_bytes));
    }
  });
}

}  // namespace hvd
