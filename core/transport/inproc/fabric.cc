#include "transport/inproc/fabric.h"

#include <algorithm>

namespace hvd::inproc {

std::unique_ptr<Window> Fabric::MakeWindow(uint32_t set, const std::vector<int>& members, int rank,
                                           const Waker& waker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto board = boards_.Get(set, rank, static_cast<int>(members.size()));
  const auto position = std::find(members.begin(), members.end(), rank) - members.begin();
  return std::make_unique<InprocWindow>(std::move(board), static_cast<int>(position), waker);
}

std::unique_ptr<Transport> Fabric::MakeTransport(uint32_t channel, int rank, const Waker& waker,
                                                 bool peers_may_leave) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::make_unique<InprocTransport>(hubs_.Get(channel, rank, size_), rank, waker, peers_may_leave);
}

}  // namespace hvd::inproc
