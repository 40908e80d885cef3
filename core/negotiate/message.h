#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/rank.h"
#include "base/status.h"
#include "base/types.h"

namespace hvd::negotiate {

using Micros = int64_t;  // any monotonic clock

constexpr uint8_t kMessageVersion = 2;
constexpr uint32_t kNoId = 0xffffffff;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxDims = 16;
constexpr size_t kMaxTensors = 1 << 20;  // in one request
constexpr size_t kMaxErrorBytes = 8192;
constexpr size_t kMaxSlots = 1 << 16;  // in one schedule
// One rank's tensor takes at most so much (256 TiB), so that the sum over all ranks of a job cannot
// overflow.
constexpr int64_t kMaxTensorBytes = int64_t{1} << 48;

struct TensorMeta {
  DataType dtype = DataType::kFloat32;
  Shape shape;
  bool operator==(const TensorMeta& o) const { return dtype == o.dtype && shape == o.shape; }
};

// What one rank asks for: one operation over one or more tensors (a group is one request, so it is
// all-or-nothing by construction).
struct Request {
  OpKind kind = OpKind::kAllreduce;
  ReduceOp reduce_op = ReduceOp::kSum;  // see HasReduction
  double prescale = 1.0;
  double postscale = 1.0;
  GlobalRank root{0};  // broadcast
  int32_t device = kHostDevice;
  std::string name;  // empty for an unnamed operation
  std::vector<TensorMeta> tensors;
  Shape splits;  // alltoall: how many rows go to each member of the set

  // Equal requests share a cached id: everything on which the members must agree, so
  // - of an allgather or alltoall not the first dimensions nor the splits: they may differ between
  // ranks and
  //   from step to step, and travel with each announcement (SizesOf);
  // - of the device only its kind: every rank has numbers of its own;
  // - nothing that `kind` does not use (the root of an allreduce).
  bool SameAs(const Request& other) const;
};

// Whether the members must agree on reduce_op and the factors. So it is for an allgather, too: a
// compressed or sparse tensor is gathered first, and each rank reduces the rows itself.
inline bool HasReduction(OpKind kind) { return Reduces(kind) || kind == OpKind::kAllgather; }

// What travels with each announcement, for n members: of an allgather the first dimension of each
// tensor (of a 0-dim tensor, which is an error, 0), of an alltoall its splits (n numbers, one
// tensor). Empty for the other kinds.
Shape SizesOf(const Request& request);

// An unnamed operation in messages to people: "allreduce.noname.7".
std::string PublicName(OpKind kind, uint64_t ordinal);

// One rank is ready. In full the first time; by the id that the response gave it from then on.
struct Announcement {
  uint32_t id = kNoId;  // kNoId: `request` is set
  Request request;
  // 0: named; else this is the member's n-th unnamed operation in this set, from 1, without a gap.
  // One count for all kinds, so that an unnamed allreduce here and an unnamed barrier there meet
  // and are found to differ.
  uint64_t ordinal = 0;
  Shape sizes;  // see SizesOf
};

// What a row (an index of the first dimension) of a tensor takes, and the whole of it. -1: more
// than kMaxTensorBytes.
int64_t BytesPerRow(const TensorMeta& tensor);
int64_t BytesOf(const TensorMeta& tensor);
// What all tensors of a request take; the largest number where it is more.
int64_t BytesOf(const Request& request);

// Member -> sequencer. `urgent` = how many of this member's announcements so far (since the
// beginning, these included) it is blocked on or has been: their batches need not wait for more.
struct AnnounceMessage {
  uint64_t urgent = 0;
  std::vector<Announcement> announcements;
  // After these announcements the member takes part in everything without data of its own, until
  // all members have joined; it announces nothing in the meantime.
  bool joins = false;
  // How many schedules this member has been told of. The sequencer takes what was announced before
  // the latest for not announced: the member has placed it in the schedule, or announces it again
  // when that is left.
  uint64_t epoch = 0;
  // While the set follows a schedule: this member waits at the gate of this number. 0: it does not.
  uint64_t waits_at = 0;
};

// One decided operation: run it, or fail it with the same words everywhere. A member finds its
// entry by `ordinal` if that is not 0, else by `name`, which is that of `id` when `known`.
struct Decision {
  uint32_t id =
      kNoId;  // cached id from now on; kNoId when the cache is off or full, or on an error
  bool known =
      false;  // the members learned `id` before; if not, each learns it now with its own request
  std::string name;  // empty when known or unnamed
  uint64_t ordinal = 0;
  std::string error;  // empty: execute
  // What the members announced as SizesOf; 0 for those that have joined. For n members:
  // allgather: [tensor * n + member]; alltoall: [sender * n + receiver].
  std::vector<int64_t> sizes;
  // Some members have joined instead of announcing this.
  bool partial = false;
  // Set when partial, not known and no error: the joined members have no request of their own.
  std::optional<Request> request;
};

// One operation of a step that repeats: a cached id, and the sizes that were decided with it.
struct Slot {
  uint32_t id = kNoId;
  bool unnamed = false;
  std::vector<int64_t> sizes = {};  // see Decision
  bool operator==(const Slot& o) const {
    return id == o.id && unnamed == o.unnamed && sizes == o.sizes;
  }
};

// What the members of a set do again and again: the batches of a step, in the order in which they
// run. A member that knows it need not announce, nor hear, what comes next.
struct Schedule {
  std::vector<std::vector<Slot>> batches;  // none of them is empty
  bool empty() const { return batches.empty(); }
};

// Sequencer -> members. Every member carries out every response of its set in the order of the
// numbers.
struct Response {
  uint64_t number = 0;
  std::vector<Decision> decisions;  // one closed batch: they may travel together
  // Somebody: after these decisions all members have joined, this one the last. Then nobody is
  // joined any more, and the members count their unnamed operations from 1 again.
  GlobalRank last_joined;
  // After these decisions, on which nothing more follows, the members follow a schedule until one
  // of them cannot: then they announce again.
  Schedule schedule;  // empty: they do not
};

// Bytes are little endian, lengths are checked before use, anything odd is an error (kAborted)
// naming the field. Compact: a cached announcement or decision is a few bytes (varints). Encode
// appends to `out`. Names longer than kMaxNameBytes, shapes of more than kMaxDims or with negative
// dimensions must be refused before they come here.
void Encode(const AnnounceMessage& message, std::string* out);
Status Decode(std::string_view bytes, AnnounceMessage* message);
void Encode(const Response& response, std::string* out);
Status Decode(std::string_view bytes, Response* response);

}  // namespace hvd::negotiate
