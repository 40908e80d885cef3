#include "transport/inproc/fabric.h"

namespace hvd::inproc {

std::unique_ptr<Window> Fabric::MakeWindow(uint32_t set, const Members& members, GlobalRank rank,
                                           const Waker& waker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto board = boards_.Get(set, rank, members.size());
  return std::make_unique<InprocWindow>(std::move(board), members.Find(rank), waker);
}

std::unique_ptr<Transport> Fabric::MakeTransport(uint32_t channel, GlobalRank rank, const Waker& waker,
                                                 bool peers_may_leave) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::make_unique<InprocTransport>(hubs_.Get(channel, rank, size_), rank.value(), waker,
                                           peers_may_leave);
}

}  // namespace hvd::inproc
