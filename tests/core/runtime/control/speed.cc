// Nanoseconds per tensor that a rank's own thread spends on negotiation while its process set
// follows a learned schedule: 161 known tensors are placed, in the order of submission, and taken
// in batches.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/control/member.h"

namespace hvd {
namespace {

constexpr uint32_t kTensors = 161;
constexpr uint32_t kBatch = 23;
constexpr int kRounds = 2000;

HandlePtr MakeHandle(uint32_t id) {
  Entry entry;
  entry.request.name = "model.layers." + std::to_string(id) + ".attention.weight";
  entry.request.reduce_op = ReduceOp::kAverage;
  entry.request.tensors.push_back({DataType::kFloat32, {64, static_cast<int64_t>(id) + 1}});
  return std::make_shared<Handle>(std::move(entry));
}

// Every tensor has got its id.
void Learn(Member* member, Queue* queue) {
  negotiate::Response response;
  response.number = 1;
  for (uint32_t id = 0; id < kTensors; ++id) {
    const HandlePtr handle = MakeHandle(id);
    if (!queue->Push(handle).ok()) std::abort();
    member->Add(handle);
    negotiate::Decision& decision = response.decisions.emplace_back();
    decision.id = id;
    decision.name = handle->entry.request.name;
    decision.request = handle->entry.request;
  }
  std::vector<Decided> decided;
  if (!member->Match(std::move(response), &decided).ok()) std::abort();
  for (Decided& one : decided) queue->Forget(one.handle.get());
}

negotiate::Schedule Steps() {
  negotiate::Schedule schedule;
  for (uint32_t id = 0; id < kTensors; ++id) {
    if (id % kBatch == 0) schedule.batches.emplace_back();
    schedule.batches.back().emplace_back().id = id;
  }
  return schedule;
}

double TimeStep(Member* member) {
  std::vector<HandlePtr> handles;
  for (uint32_t id = 0; id < kTensors; ++id) handles.push_back(MakeHandle(id));
  const auto begin = std::chrono::steady_clock::now();
  size_t taken = 0;
  for (const HandlePtr& handle : handles) {
    member->Add(handle);
    if (member->follower()->Ready()) taken += member->follower()->TakeBatch().size();
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  if (taken != kTensors || member->departs()) std::abort();
  return took.count() / kTensors;
}

}  // namespace
}  // namespace hvd

int main() {
  using namespace hvd;
  Queue queue;
  Counters counters;
  Member member(0, Members::Everybody(2), Position(1), &queue, &counters, nullptr);
  Learn(&member, &queue);
  if (!member.Follow(Steps()).ok()) std::abort();
  double best = 1e18;
  for (int i = 0; i < kRounds; ++i) best = std::min(best, TimeStep(&member));
  std::printf("follow a learned schedule, %u tensors  %6.1f ns per tensor\n", kTensors, best);
}
