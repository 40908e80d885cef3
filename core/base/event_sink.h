#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

#include "base/rank.h"
#include "base/types.h"

namespace hvd {

// Names of the phases of an operation's life.
inline const char* NegotiatePhase(OpKind kind) {
  constexpr const char* kNames[] = {
      "NEGOTIATE_ALLREDUCE", "NEGOTIATE_ALLGATHER",     "NEGOTIATE_BROADCAST", "NEGOTIATE_BARRIER",
      "NEGOTIATE_ALLTOALL",  "NEGOTIATE_REDUCESCATTER", "NEGOTIATE_JOIN"};
  static_assert(std::size(kNames) == kOpKinds);
  return kNames[static_cast<int>(kind)];
}

// Where a learned schedule spares the negotiation.
inline const char* GatePhase(OpKind kind) {
  constexpr const char* kNames[] = {"GATE_ALLREDUCE", "GATE_ALLGATHER", "GATE_BROADCAST",
                                    "GATE_BARRIER",   "GATE_ALLTOALL",  "GATE_REDUCESCATTER",
                                    "GATE_JOIN"};
  static_assert(std::size(kNames) == kOpKinds);
  return kNames[static_cast<int>(kind)];
}

inline const char* OperationPhase(OpKind kind) {
  constexpr const char* kNames[] = {"ALLREDUCE", "ALLGATHER",     "BROADCAST", "BARRIER",
                                    "ALLTOALL",  "REDUCESCATTER", "JOIN"};
  static_assert(std::size(kNames) == kOpKinds);
  return kNames[static_cast<int>(kind)];
}

// What an operation is about.
struct OperationInfo {
  OpKind kind = OpKind::kAllreduce;
  std::string_view name;  // empty: an unnamed operation
  uint32_t tensors = 0;
  DataType dtype = DataType::kUint8;  // of the first tensor
  int64_t bytes = 0;                  // of all of them, on this rank
  const Shape* shape = nullptr;       // of the only tensor; null when there are several, or none
  bool scheduled = false;             // its first phase is at a gate
};

// What a message between two ranks is about.
struct MessageInfo {
  bool sends = false;  // else it receives
  GlobalRank peer;     // the other rank; of a receive, unknown: any
  int64_t tag = 0;
  DataType dtype = DataType::kUint8;
  int64_t bytes = 0;
  const Shape* shape = nullptr;
};

// Until its payload leaves, or a receive has met its message; and after that.
inline const char* AwaitPhase(bool sends) { return sends ? "WAIT_SEND" : "WAIT_RECV"; }
inline const char* MessagePhase(bool sends) { return sends ? "SEND" : "RECV"; }

constexpr const char* kQueuePhase = "QUEUE";  // decided, waits for its turn

// Where the engine reports the phases of an operation's life: one after the other, from Begin to
// End. One interface, so that the layers below the timeline need not know it and a job without a
// timeline pays one null check. An operation is known by its number on this rank, so that only
// Begin needs its name; a number without Begin is passed over. Phases are string literals. For the
// holder of the progress lock.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // Its first phase: it is announced.
  virtual void Begin(uint64_t operation, uint32_t process_set, const OperationInfo& info) = 0;
  // Likewise of a message, which waits for its peer.
  virtual void BeginMessage(uint64_t operation, uint32_t process_set, const MessageInfo& info) = 0;
  // The end of the phase before, too.
  virtual void Phase(uint64_t operation, const char* phase) = 0;
  virtual void End(uint64_t operation) = 0;
  // The sequencer has heard that a rank has submitted the tensor.
  virtual void Ready(uint32_t process_set, OpKind kind, std::string_view name, GlobalRank rank) = 0;
  // A batch is carried out from here on.
  virtual void MarkCycle() = 0;
};

}  // namespace hvd
