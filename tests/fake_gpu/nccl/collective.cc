#include "nccl/collective.h"

#include <algorithm>
#include <cstring>

#include "cuda/settings.h"
#include "nccl/abi.h"
#include "nccl/arithmetic.h"

namespace fake_gpu {
namespace {

// One rank's part of a collective. A round handles some elements from `at` on.
class Part {
 public:
  Part(const Seating& seating, const Call& call)
      : seating_(seating), call_(call), what_(call.what), size_(BytesOf(call.what.dtype)) {}

  int Run(std::string* why) {
    size_t at = 0;
    do {
      const size_t elements = std::min(what_.count - at, PerRound());
      Publish(at, elements);
      if (!seating_.exchange->Barrier(seating_.stopped)) return kSuccess;
      if (!AllAlike(why)) return kInvalidUsage;
      if (at == 0) Spend();
      Collect(at, elements);
      seating_.exchange->NextRound();
      at += elements;
    } while (at < what_.count);
    return kSuccess;
  }

 private:
  // A slot holds a piece for each rank where the ranks get different results.
  size_t PerRound() const {
    const size_t slot = kSlotBytes / size_;
    return what_.kind == Kind::kReduceScatter ? slot / seating_.nranks : slot;
  }

  bool IsRoot() const { return what_.root == seating_.rank; }
  std::byte* Slot(int rank) const { return seating_.exchange->Slot(rank); }

  void Publish(size_t at, size_t elements) {
    Operation* const told = seating_.exchange->Told(seating_.rank);
    *told = what_;
    told->time_us = call_.stream->time_us();
    std::byte* slot = Slot(seating_.rank);
    const int pieces = what_.kind == Kind::kReduceScatter ? seating_.nranks : 1;
    if (what_.kind == Kind::kBroadcast && !IsRoot()) return;
    for (int piece = 0; piece < pieces; ++piece) {
      Copy(slot + piece * elements * size_, call_.send + (piece * what_.count + at) * size_,
           elements);
    }
  }

  bool AllAlike(std::string* why) const {
    for (int rank = 0; rank < seating_.nranks; ++rank) {
      const Operation& other = *seating_.exchange->Told(rank);
      if (AreAlike(what_, other)) continue;
      *why = "rank " + std::to_string(seating_.rank) + " calls " + Describe(what_) + ", rank " +
             std::to_string(rank) + " calls " + Describe(other);
      return false;
    }
    return true;
  }

  // From when the last rank has come.
  void Spend() const {
    int64_t begin_us = 0;
    for (int rank = 0; rank < seating_.nranks; ++rank)
      begin_us = std::max(begin_us, seating_.exchange->Told(rank)->time_us);
    call_.stream->WaitUntil(begin_us + TheSettings().nccl_us);
  }

  void Collect(size_t at, size_t elements) {
    std::byte* recv = call_.recv + at * size_;
    switch (what_.kind) {
      case Kind::kAllReduce:
        return ReduceAll(0, elements, recv);
      case Kind::kReduce:
        if (IsRoot()) ReduceAll(0, elements, recv);
        return;
      case Kind::kReduceScatter:
        return ReduceAll(seating_.rank * elements * size_, elements, recv);
      case Kind::kBroadcast:
        return Copy(recv, Slot(what_.root), elements);
      default:
        for (int rank = 0; rank < seating_.nranks; ++rank) {
          Copy(recv + rank * what_.count * size_, Slot(rank), elements);
        }
    }
  }

  void ReduceAll(size_t offset, size_t elements, std::byte* out) {
    std::vector<Input> inputs;
    for (int rank = 0; rank < seating_.nranks; ++rank) {
      inputs.push_back({Slot(rank) + offset, seating_.exchange->Told(rank)->scale});
    }
    Reduce(what_.dtype, what_.op, inputs, elements, out);
  }

  void Copy(std::byte* to, const std::byte* from, size_t elements) const {
    if (elements > 0) std::memcpy(to, from, elements * size_);
  }

  const Seating& seating_;
  const Call& call_;
  const Operation what_;
  const size_t size_;
};

}  // namespace

int RunCollective(const Seating& seating, const Call& call, std::string* why) {
  return Part(seating, call).Run(why);
}

}  // namespace fake_gpu
