#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace hvd::negotiate {

constexpr uint8_t kMessageVersion = 1;
constexpr uint32_t kNoId = 0xffffffff;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxDims = 16;
constexpr size_t kMaxTensors = 1 << 20;  // in one request

struct TensorMeta {
  DataType dtype = DataType::kFloat32;
  Shape shape;
  bool operator==(const TensorMeta& o) const { return dtype == o.dtype && shape == o.shape; }
};

// What one rank asks for: one operation over one or more tensors (a group is one request, so it is
// all-or-nothing by construction).
struct Request {
  OpKind kind = OpKind::kAllreduce;
  ReduceOp reduce_op = ReduceOp::kSum;  // allreduce
  double prescale = 1.0;
  double postscale = 1.0;
  int32_t root = 0;     // broadcast; global rank
  int32_t device = -1;  // -1 = CPU
  std::string name;     // for an unnamed operation its public name's stem: "allreduce.noname"
  std::vector<TensorMeta> tensors;

  // Equal requests may share a cached id. Of an allgather the first dimensions may differ between ranks and from
  // step to step: they are left out here and travel with each announcement.
  bool SameAs(const Request& other) const;
};

// One rank is ready. In full the first time; by the id that the response gave it from then on.
struct Announcement {
  uint32_t id = kNoId;     // kNoId: `request` is set
  Request request;
  uint64_t ordinal = 0;    // 0: named; else the n-th unnamed operation of this stem in this set, from 1
  Shape first_dims;        // allgather: first dimension of each tensor
};

// Member -> sequencer. `urgent` = how many of this member's announcements so far (since the beginning,
// these included) it is blocked on or has been: their batches need not wait for company.
struct AnnounceMessage {
  uint64_t urgent = 0;
  std::vector<Announcement> announcements;
};

// One decided operation: run it, or fail it with the same words everywhere.
struct Decision {
  uint32_t id = kNoId;      // cached id from now on; kNoId when caching is off or on an error
  bool known = false;       // the members learned `id` before: `name` does not travel
  std::string name;
  uint64_t ordinal = 0;
  std::string error;        // empty: execute
  // allgather: first dimension per tensor and member, tensor-major.
  std::vector<int64_t> first_dims;
};

// Sequencer -> members. Every member carries out every response of its set in the order of the numbers.
struct Response {
  uint64_t number = 0;
  std::vector<Decision> decisions;  // one closed batch: they may travel together
};

// Bytes are little endian, lengths are checked before use, anything odd is an error naming the field.
// Compact: a cached announcement or decision is a few bytes (varints).
void Encode(const AnnounceMessage& message, std::string* out);
Status Decode(std::string_view bytes, AnnounceMessage* message);
void Encode(const Response& response, std::string* out);
Status Decode(std::string_view bytes, Response* response);

}  // namespace hvd::negotiate
