#include "nccl/group.h"

#include <algorithm>
#include <utility>

#include "nccl/abi.h"

namespace fake_gpu {
namespace {

struct Group {
  int depth = 0;
  int error = kSuccess;
  std::vector<CommunicatorPtr> inits;
  std::vector<std::pair<CommunicatorPtr, std::vector<Call>>> calls;  // in order of the first call
};

thread_local Group group;

// An error rather than kInProgress rather than kSuccess.
int Worse(int a, int b) {
  const bool is_error = b != kSuccess && b != kInProgress;
  return is_error || a == kSuccess ? b : a;
}

int FinishInit(Communicator* communicator) {
  if (!communicator->blocking()) return kInProgress;
  communicator->AwaitHelper();
  return communicator->state();
}

}  // namespace

void StartGroup() { ++group.depth; }

bool IsInGroup() { return group.depth > 0; }

void AddInit(const CommunicatorPtr& communicator) { group.inits.push_back(communicator); }

void AddToGroup(const CommunicatorPtr& communicator, Call call) {
  const auto of_communicator =
      std::find_if(group.calls.begin(), group.calls.end(),
                   [&](const auto& calls) { return calls.first == communicator; });
  if (of_communicator == group.calls.end()) {
    group.calls.push_back({communicator, {std::move(call)}});
  } else {
    of_communicator->second.push_back(std::move(call));
  }
}

int FailGroup(int result) {
  if (group.depth > 0 && result != kSuccess) group.error = result;
  return result;
}

int EndGroup() {
  if (--group.depth > 0) return kSuccess;
  const Group ended = std::exchange(group, Group{});
  if (ended.error != kSuccess) return ended.error;
  int result = kSuccess;
  for (const CommunicatorPtr& communicator : ended.inits) {
    result = Worse(result, FinishInit(communicator.get()));
  }
  for (const auto& [communicator, calls] : ended.calls) {
    result = Worse(result, communicator->Launch(calls));
  }
  return result;
}

}  // namespace fake_gpu
