#pragma once

#include <vector>

#include "collective/communicator.h"
#include "collective/hierarchy/hierarchy.h"

namespace hvd {

// One lane of one chunk on its way between the hosts: the allreduce among its carriers, in place.
//
// Its receives are posted at once, by Post, and depend on nothing that the rank has yet to do. Its
// sends begin with Send, when the lane has been reduced within the host.
class LaneExchange {
 public:
  // What all lanes of an operation have in common.
  struct Plan {
    const Communicator* comm = nullptr;
    const Lanes* lanes = nullptr;
    uint64_t sequence = 0;
    Reduction finish;     // applies to the hosts' partial results
    int64_t element = 1;  // bytes
  };

  // Of `scratch` it needs so much for a lane of at most `bytes`.
  static int64_t ScratchBytes(const Plan& plan, int64_t bytes);

  // `number` names the exchange among those of the operation; `lane` says who takes part.
  void Post(const Plan& plan, int lane, uint32_t number, std::byte* data, int64_t bytes,
            std::byte* scratch);
  void Send(const Plan& plan);
  // Goes on with what has arrived. True: something was done; *status is an error, or stays.
  bool Advance(const Plan& plan, Status* status);
  bool done() const { return stage_ == Stage::kDone; }

 private:
  enum class Stage { kPosted, kParts, kResults, kDone };
  struct Range {
    int64_t begin, end;
    size_t bytes() const { return static_cast<size_t>(end - begin); }
  };

  bool Whole(const Plan& plan) const { return SendsWhole(plan, bytes_); }
  static bool SendsWhole(const Plan& plan, int64_t bytes);
  // What a host reduces of the lane.
  Range Block(const Plan& plan, int host) const;
  bool Arrived(const Plan& plan, const std::vector<Transfer>& received, Status* status) const;
  void Combine(const Plan& plan) const;
  void SendResult(const Plan& plan);

  Stage stage_ = Stage::kDone;
  int lane_ = 0;
  uint32_t number_ = 0;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  std::byte* scratch_ = nullptr;
  // By host: what is reduced here, and the results.
  std::vector<Transfer> parts_in_, parts_out_, results_in_, results_out_;
};

}  // namespace hvd
