#include "sim_member.h"

#include <algorithm>

#include "random_request.h"

namespace hvd::negotiate {
namespace {

Request RandomOperation(Random* random) {
  return RandomRequest(random, {OpKind::kAllreduce, OpKind::kAllreduce, OpKind::kAllgather,
                                OpKind::kBroadcast, OpKind::kReducescatter, OpKind::kAlltoall});
}

}  // namespace

std::vector<Request> Workload(uint64_t seed, int named, int unnamed) {
  Random random(seed);
  std::vector<Request> workload;
  for (int i = 0; i < named; ++i) {
    workload.push_back(RandomOperation(&random));
    workload.back().name = "layer." + std::to_string(i) + ".weight";
  }
  for (int i = 0; i < unnamed; ++i) {
    workload.push_back(RandomOperation(&random));
    if (i % 3 == 1) {
      workload.back() = Request{};
      workload.back().kind = OpKind::kBarrier;
    }
    if (i % 3 == 2) workload.back() = workload[workload.size() - 3];  // the same description again
  }
  return workload;
}

int64_t FirstDim(uint64_t seed, int rank, int step, size_t operation, size_t tensor) {
  const auto mixed = (static_cast<uint64_t>(rank) << 40) ^ (static_cast<uint64_t>(step) << 30) ^
                     (operation << 8) ^ tensor;
  return static_cast<int64_t>(Random(seed ^ mixed).Below(50));
}

SimMember::SimMember(uint64_t seed, int rank, int ranks, const std::vector<Request>* workload)
    : seed_(seed),
      rank_(rank),
      ranks_(ranks),
      workload_(workload),
      random_(seed ^ (static_cast<uint64_t>(rank) << 32)),
      client_(rank) {}

void SimMember::BeginStep(int step) {
  step_ = step;
  next_ = 0;
  order_.resize(workload_->size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = i;
  random_.Shuffle(&order_);
  // The unnamed ones keep their order: that is what matches them.
  std::vector<size_t> unnamed;
  for (size_t i : order_) {
    if ((*workload_)[i].name.empty()) unnamed.push_back(i);
  }
  std::sort(unnamed.begin(), unnamed.end());
  auto in_order = unnamed.begin();
  for (size_t& i : order_) {
    if ((*workload_)[i].name.empty()) i = *in_order++;
  }
}

std::string SimMember::Submit(size_t count, bool block) {
  announced_.clear();
  for (; count > 0 && !submitted(); --count) {
    announced_.push_back(order_[next_]);
    Announce(order_[next_++]);
  }
  return client_.Send(block);
}

void SimMember::Announce(size_t operation) {
  Request request = (*workload_)[operation];
  for (size_t t = 0; t < request.tensors.size() && request.kind == OpKind::kAllgather; ++t) {
    request.tensors[t].shape[0] = FirstDim(seed_, rank_, step_, operation, t);
  }
  const auto spoiled = std::find(spoiled_.begin(), spoiled_.end(), operation);
  if (spoiled != spoiled_.end()) {
    request.tensors.push_back({DataType::kFloat32, {1}});
    spoiled_.erase(spoiled);
  }
  client_.Announce(std::move(request), operation);
}

void SimMember::Receive(const std::string& bytes, std::vector<std::string>* violations) {
  for (const SimClient::Done& done : client_.Receive(bytes, violations)) {
    const std::string wrong = CheckSizes(done);
    if (!wrong.empty()) violations->push_back("rank " + std::to_string(rank_) + ": " + wrong);
  }
}

std::string SimMember::CheckSizes(const SimClient::Done& done) const {
  if (!done.decision.error.empty()) return "";
  std::vector<int64_t> expected;
  const size_t tensors = done.request.kind == OpKind::kAllgather ? done.request.tensors.size() : 0;
  for (size_t t = 0; t < tensors; ++t) {
    for (int rank = 0; rank < ranks_; ++rank)
      expected.push_back(FirstDim(seed_, rank, step_, done.operation, t));
  }
  return done.decision.sizes == expected ? "" : "wrong sizes for '" + done.request.name + "'";
}

}  // namespace hvd::negotiate
