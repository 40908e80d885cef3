#include "collective/alltoall_parts.h"

namespace hvd {

AlltoallParts::AlltoallParts(const CollectiveSpec& spec, int rank, int size)
    : size(size),
      bytes(static_cast<size_t>(size) * static_cast<size_t>(size)),
      to(static_cast<size_t>(size)),
      from(static_cast<size_t>(size)) {
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const std::vector<int64_t>& piece_bytes = spec.rank_bytes[i];
    for (size_t pair = 0; pair < bytes.size(); ++pair) bytes[pair] += piece_bytes[pair];
    const std::byte* input = spec.pieces[i].input;
    std::byte* output = spec.pieces[i].output;
    const std::byte* own_input = nullptr;
    std::byte* own_output = nullptr;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) own_input = input;
      if (peer == rank) own_output = output;
      const int64_t sent = piece_bytes[static_cast<size_t>(rank * size + peer)];
      const int64_t received = piece_bytes[static_cast<size_t>(peer * size + rank)];
      to[peer].push_back({input, nullptr, sent});
      from[peer].push_back({nullptr, output, received});
      input += sent;
      output += received;
    }
    own.push_back({own_input, own_output, from[rank].back().bytes});
  }
  to[rank].clear();
  from[rank].clear();
}

}  // namespace hvd
