#include "collective/hierarchy/lane_exchange.h"

#include <algorithm>

#include "collective/kernels/kernels.h"

namespace hvd {

namespace {

// Up to here a lane travels whole between more than two hosts, too: latency is what it costs.
constexpr int64_t kWholeBytes = 4 << 10;

bool AllDone(const std::vector<Transfer>& transfers, int but) {
  for (size_t host = 0; host < transfers.size(); ++host) {
    if (static_cast<int>(host) != but && !transfers[host].done) return false;
  }
  return true;
}

}  // namespace

bool LaneExchange::SendsWhole(const Plan& plan, int64_t bytes) {
  return plan.lanes->hosts() == 2 || bytes <= kWholeBytes;
}

LaneExchange::Range LaneExchange::Block(const Plan& plan, int host) const {
  if (Whole(plan)) return {0, bytes_};
  const int64_t elements = bytes_ / plan.element;
  const int64_t hosts = plan.lanes->hosts();
  const auto end = [&](int64_t h) {
    return (elements / hosts * h + std::min(h, elements % hosts)) * plan.element;
  };
  return {end(host), end(host + 1)};
}

int64_t LaneExchange::ScratchBytes(const Plan& plan, int64_t bytes) {
  const int64_t hosts = plan.lanes->hosts();
  const int64_t block = SendsWhole(plan, bytes) ? bytes : bytes / hosts + plan.element;
  // A shorter lane, at the end of the stream, may go whole where a long one does not.
  return std::max(block, std::min(bytes, kWholeBytes)) * hosts;
}

void LaneExchange::Post(const Plan& plan, int lane, uint32_t number, std::byte* data, int64_t bytes,
                        std::byte* scratch) {
  lane_ = lane;
  number_ = number;
  data_ = data;
  bytes_ = bytes;
  scratch_ = scratch;
  stage_ = bytes == 0 ? Stage::kDone : Stage::kPosted;
  const auto hosts = static_cast<size_t>(plan.lanes->hosts());
  for (auto* transfers : {&parts_in_, &parts_out_, &results_in_, &results_out_}) {
    transfers->assign(hosts, {});
  }
  if (bytes == 0) return;
  const int self = plan.lanes->own_host();
  const Range mine = Block(plan, self);
  for (int host = 0; host < plan.lanes->hosts(); ++host) {
    if (host == self) continue;
    const int peer = plan.lanes->Carrier(host, lane_);
    const auto at = static_cast<int64_t>(mine.bytes()) * host;
    plan.comm->Recv(peer, plan.sequence, 2 * number_, scratch_ + at, mine.bytes(),
                    &parts_in_[host]);
    if (Whole(plan)) continue;
    // A result arrives only after the part that lies there has been sent, and has been read.
    const Range block = Block(plan, host);
    plan.comm->Recv(peer, plan.sequence, 2 * number_ + 1, data_ + block.begin, block.bytes(),
                    &results_in_[host]);
  }
}

void LaneExchange::Send(const Plan& plan) {
  if (stage_ != Stage::kPosted) return;
  const int self = plan.lanes->own_host();
  // Everybody begins with another one.
  for (int step = 1; step < plan.lanes->hosts(); ++step) {
    const int host = (self + step) % plan.lanes->hosts();
    const Range block = Block(plan, host);
    plan.comm->Send(plan.lanes->Carrier(host, lane_), plan.sequence, 2 * number_,
                    data_ + block.begin, block.bytes(), &parts_out_[host]);
  }
  stage_ = Stage::kParts;
}

bool LaneExchange::Advance(const Plan& plan, Status* status) {
  const int self = plan.lanes->own_host();
  if (stage_ == Stage::kParts && Arrived(plan, parts_in_, status)) {
    // What is combined in place may not be on its way any more.
    if (!AllDone(parts_out_, self)) return false;
    Combine(plan);
    if (Whole(plan)) {
      stage_ = Stage::kDone;
    } else {
      SendResult(plan);
      stage_ = Stage::kResults;
    }
    return true;
  }
  if (stage_ == Stage::kResults && Arrived(plan, results_in_, status) &&
      AllDone(results_out_, self)) {
    stage_ = Stage::kDone;
    return true;
  }
  return false;
}

// Parts are of the block that is reduced here, results are of the blocks of their senders.
bool LaneExchange::Arrived(const Plan& plan, const std::vector<Transfer>& received,
                           Status* status) const {
  const int self = plan.lanes->own_host();
  if (!AllDone(received, self)) return false;
  for (int host = 0; host < plan.lanes->hosts() && status->ok(); ++host) {
    if (host == self) continue;
    const Range agreed = Block(plan, &received == &parts_in_ ? self : host);
    *status = plan.comm->Check(received[host], agreed.bytes(), plan.lanes->Carrier(host, lane_));
  }
  return status->ok();
}

// In the order of the hosts, so that all carriers that combine the same get the same bits.
void LaneExchange::Combine(const Plan& plan) const {
  const Range mine = Block(plan, plan.lanes->own_host());
  std::vector<const void*> sources;
  for (int host = 0; host < plan.lanes->hosts(); ++host) {
    const bool own = host == plan.lanes->own_host();
    sources.push_back(own ? data_ + mine.begin
                          : scratch_ + static_cast<int64_t>(mine.bytes()) * host);
  }
  void* destination = data_ + mine.begin;
  kernels::Reduce(plan.finish, sources.data(), static_cast<int>(sources.size()), &destination, 1,
                  static_cast<int64_t>(mine.bytes()) / plan.element);
}

void LaneExchange::SendResult(const Plan& plan) {
  const int self = plan.lanes->own_host();
  const Range mine = Block(plan, self);
  for (int step = 1; step < plan.lanes->hosts(); ++step) {
    const int host = (self + step) % plan.lanes->hosts();
    plan.comm->Send(plan.lanes->Carrier(host, lane_), plan.sequence, 2 * number_ + 1,
                    data_ + mine.begin, mine.bytes(), &results_out_[host]);
  }
}

}  // namespace hvd
