#include "runtime/progress/payload.h"

#include <algorithm>
#include <utility>

namespace hvd {

size_t PayloadBytes(const negotiate::Request& request) {
  size_t bytes = 0;
  for (const negotiate::TensorMeta& tensor : request.tensors)
    bytes += PayloadBytes(negotiate::BytesOf(tensor));
  return bytes;
}

// What lies between two tensors is zero: nothing of this process's memory travels.
void Pack(const Epoch& epoch, size_t bytes, std::byte* payload) {
  std::fill_n(payload, bytes, std::byte{0});
  std::byte* to = payload;
  epoch.ForEachOfNext([&](const HandlePtr& handle) {
    for (const TensorBuffer& buffer : handle->entry.buffers) {
      std::copy_n(buffer.input, buffer.input_bytes, to);
      to += PayloadBytes(buffer.input_bytes);
    }
  });
}

bool ReadsItsOwnResults(const Epoch& epoch) {
  if (epoch.next().size() == 1) return false;                          // nothing comes later
  std::vector<std::pair<const std::byte*, const std::byte*>> written;  // begin and end
  bool reads = false;
  epoch.ForEachOfNext([&](const HandlePtr& handle) {
    const std::vector<TensorBuffer>& buffers = handle->entry.buffers;
    for (const TensorBuffer& buffer : buffers) {
      const std::byte* const end = buffer.input + buffer.input_bytes;
      reads = reads || std::any_of(written.begin(), written.end(), [&](const auto& range) {
                return range.first < end && buffer.input < range.second;
              });
    }
    for (const TensorBuffer& buffer : buffers)
      if (buffer.output != nullptr)
        written.emplace_back(buffer.output, buffer.output + buffer.output_bytes);
  });
  return reads;
}

}  // namespace hvd
