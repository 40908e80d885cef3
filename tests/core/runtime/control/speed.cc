// Nanoseconds per tensor that a rank's own thread spends on negotiation of 161 known tensors: it
// announces them by their ids and matches the response that decides them; or they are placed in a
// learned schedule, in the order of submission, and taken in batches.

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

using Clock = std::chrono::steady_clock;

double NanosSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kTensors;
}

std::vector<HandlePtr> MakeStep() {
  std::vector<HandlePtr> handles;
  for (uint32_t id = 0; id < kTensors; ++id) handles.push_back(MakeHandle(id));
  return handles;
}

struct ById {
  double announce = 1e18;
  double match = 1e18;
};

void TimeById(Member* member, uint64_t number, ById* best) {
  const std::vector<HandlePtr> handles = MakeStep();
  auto begin = Clock::now();
  for (const HandlePtr& handle : handles) member->Add(handle);
  negotiate::AnnounceMessage message;
  std::string bytes;
  if (!member->TakeMessage(&message)) std::abort();
  Encode(message, &bytes);
  best->announce = std::min(best->announce, NanosSince(begin));
  negotiate::Response response;
  response.number = number;
  negotiate::Decision& run = response.decisions.emplace_back();
  run.id = 0;
  run.count = kTensors;
  run.known = true;
  bytes.clear();
  Encode(response, &bytes);
  begin = Clock::now();
  std::vector<Decided> decided;
  if (!Decode(bytes, &response).ok()) std::abort();
  if (!member->Match(std::move(response), &decided).ok()) std::abort();
  best->match = std::min(best->match, NanosSince(begin));
  if (decided.size() != kTensors) std::abort();
}

double TimeStep(Member* member) {
  const std::vector<HandlePtr> handles = MakeStep();
  const auto begin = Clock::now();
  size_t taken = 0;
  for (const HandlePtr& handle : handles) {
    member->Add(handle);
    if (member->epoch()->Ready()) taken += member->TakeBatch().size();
  }
  const double took = NanosSince(begin);
  if (taken != kTensors || member->departs()) std::abort();
  return took;
}

}  // namespace
}  // namespace hvd

int main() {
  using namespace hvd;
  Queue queue;
  Counters counters;
  Member member(0, Members::Everybody(2), Position(1), &queue, &counters, nullptr);
  Learn(&member, &queue);
  ById by_id;
  for (int i = 0; i < kRounds; ++i) TimeById(&member, static_cast<uint64_t>(i) + 2, &by_id);
  std::printf("announce by id, %u tensors             %6.1f ns per tensor\n", kTensors,
              by_id.announce);
  std::printf("match with a response, %u tensors      %6.1f ns per tensor\n", kTensors,
              by_id.match);
  if (!member.Follow(Steps(), 0).ok()) std::abort();
  double best = 1e18;
  for (int i = 0; i < kRounds; ++i) best = std::min(best, TimeStep(&member));
  std::printf("follow a learned schedule, %u tensors  %6.1f ns per tensor\n", kTensors, best);
}
