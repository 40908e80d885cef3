#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/positions.h"
#include "base/rank.h"
#include "base/status.h"
#include "base/types.h"

namespace hvd::negotiate {

using Micros = int64_t;  // any monotonic clock

constexpr uint8_t kMessageVersion = 7;
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
  GlobalRank root{0};  // see HasRoot
  int32_t device = kHostDevice;
  std::string name;  // empty for an unnamed operation
  std::vector<TensorMeta> tensors;
  Shape splits;  // alltoall: how many rows go to each member of the set
  // Not 0: a *notice*, by which this rank tells the others something in place of the operation of
  // this name, whatever that is. The operation then takes place nowhere, and all ranks are told
  // what is in any of the notices: a bit is set if some rank has set it, kNoNotice if some rank
  // sent the operation. Nothing else of a notice counts.
  uint8_t notice = 0;

  // Equal requests share a cached id: everything on which the members must agree, so
  // - of an allgather or alltoall not the first dimensions nor the splits: they may differ between
  //   ranks and from step to step. Those of an allgather travel with each announcement (SizesOf);
  //   of an alltoall the members tell each other once it is decided;
  // - of the device only its kind: every rank has numbers of its own;
  // - nothing that `kind` does not use (the root of an allgather).
  // A notice has no id.
  bool SameAs(const Request& other) const;
};

constexpr uint8_t kNoNotice = 1;

// Whether the members must agree on reduce_op and the factors. So it is where they reduce the rows
// themselves: those of an allgather of compressed tensors, or of an alltoall.
inline bool HasReduction(OpKind kind) {
  return Reduces(kind) || kind == OpKind::kAllgather || kind == OpKind::kAlltoall;
}

// Whether they must agree on the root. That of an allreduce is the one who uses the result, if the
// others do not.
inline bool HasRoot(OpKind kind) {
  return kind == OpKind::kBroadcast || kind == OpKind::kAllreduce;
}

// Whether the first dimensions may differ between ranks.
inline bool IsRagged(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kAlltoall;
}

// What travels with each announcement: of an allgather the first dimension of each tensor (of a
// 0-dim tensor, which is an error, 0). Empty for the other kinds.
Shape SizesOf(const Request& request);

// An unnamed operation in messages to people: "allreduce.noname.7".
std::string PublicName(OpKind kind, uint64_t ordinal);

// One that was not submitted, in messages to people: "allreduce of 'grad'", or "allreduce".
std::string Submission(const Request& request);

// One of the descriptions of an operation that members sent, and which sent it.
struct Variant {
  uint32_t id = kNoId;  // kNoId: `request` is set
  Request request;
  Positions senders;
};

// An operation is ready on one member or, merged, on all members below a node of the tree. In full
// the first time; by the id that the response gave it from then on.
struct Announcement {
  uint32_t id = kNoId;  // kNoId: `request` is set
  // A run: so many operations, those of ids id, id + 1, ..., one after the other. More than one
  // only of named ones without sizes and variants, of each of which the rest holds: a step submits
  // most of what it did the first time in the order in which ids were given then.
  uint32_t count = 1;
  Request request;
  // 0: named; else this is the member's n-th unnamed operation in this set, from 1, without a gap.
  // One count for all kinds, so that an unnamed allreduce here and an unnamed barrier there meet
  // and are found to differ.
  uint64_t ordinal = 0;
  // See SizesOf; 0 for those that have joined. Merged, for m members below:
  // [tensor * m + member]. None where the variants differ.
  Shape sizes;

  // The rest is of merged ones only.
  // Empty where all below who have not joined sent one description. Otherwise each with its
  // senders, and `id` and `request` say nothing.
  std::vector<Variant> variants;
  // The member that the others below waited for, and for how long: at least kToldLateness.
  // Nobody's when nobody waited for so long.
  Position last;
  Micros waited = 0;
};
constexpr Micros kToldLateness = 100;

// An operation that somebody below has announced, and others have not for some time.
struct Waiting {
  std::string name;
  uint64_t ordinal = 0;  // as in Announcement
  OpKind kind = OpKind::kAllreduce;
  Micros waited = 0;  // since the first announcement
  Positions ready;    // who has announced it
};
constexpr size_t kMaxWaiting = 64;  // in one message

// Whether it may be more than one operation, whatever its count is.
bool IsRun(const Announcement& announcement);
// Makes the last of the list a run that ends with the named operation `id`, if all else is the
// same.
bool Extend(uint32_t id, Position last, Micros waited, std::vector<Announcement>* list);

// What a row (an index of the first dimension) of a tensor takes, and the whole of it. -1: more
// than kMaxTensorBytes.
int64_t BytesPerRow(const TensorMeta& tensor);
int64_t BytesOf(const TensorMeta& tensor);
// What all tensors of a request take; the largest number where it is more.
int64_t BytesOf(const Request& request);

// Child -> parent in the tree of a set, in which the members are leaves: what happened below, in
// the order of these fields.
struct AnnounceMessage {
  // Merged: who has joined since the message before.
  Positions joined;
  // How many of this child's announcements so far (since the beginning, these included) some and
  // all members below are blocked on or have been: their batches need not wait for more. A member
  // is both. Blocked on a later one counts as blocked on those before it.
  uint64_t some_urgent = 0;
  uint64_t all_urgent = 0;
  std::vector<Announcement> announcements;
  // After these announcements all below take part in everything without data of their own, until
  // all members of the set have joined; nothing is announced in the meantime.
  bool joins = false;
  // Merged, when it joins: who was the last to do so.
  Position last;
  // Merged: what waits for somebody below, if that has changed.
  std::optional<std::vector<Waiting>> waiting;
  // How many responses with a schedule, or that forget, those below have been told of. What was
  // announced before the latest counts as not announced: the members have placed it in the
  // schedule, or announce it again when that is left.
  uint64_t epoch = 0;
  // While the set follows a schedule, and beside the epoch the only thing that is said then: some
  // below are ready for the batch of this number, and wait for others. 0: nothing is said of it.
  uint64_t waits_for = 0;
  Positions waiters;  // merged: who does; of a member it is nobody but itself
};
// Those of runs, too.
uint64_t OperationsIn(const AnnounceMessage& message);

// One decided operation: run it, or fail it with the same words everywhere. A member finds its
// entry by `ordinal` if that is not 0, else by `name`, which is that of `id` when `known`.
struct Decision {
  uint32_t id =
      kNoId;  // cached id from now on; kNoId when the cache is off or full, or on an error
  // A run as of Announcement. More than one only of known and named ones without error and sizes,
  // which lack nobody.
  uint32_t count = 1;
  bool known =
      false;  // the members learned `id` before; if not, each learns it now with its own request
  std::string name;  // empty when known or unnamed
  uint64_t ordinal = 0;
  std::string error;   // empty: execute
  uint8_t notice = 0;  // not 0: what notices have told; `error` says that there were any
  // What the n members announced as SizesOf, [tensor * n + member]; 0 for those that have joined.
  std::vector<int64_t> sizes;
  // Some members have joined instead of announcing this.
  bool partial = false;
  // Set when partial, not known and no error: the joined members have no request of their own.
  std::optional<Request> request;
};

// As of announcements.
bool IsRun(const Decision& decision);
bool Extend(uint32_t id, std::vector<Decision>* list);

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

// How decided operations are carried out: the root's, since it must be equal on all members, from
// the same response on when it changes.
struct Policy {
  int64_t fusion_threshold = 0;
  int64_t direct_bytes = -1;  // see CollectiveSpec
  bool operator==(const Policy& o) const {
    return fusion_threshold == o.fusion_threshold && direct_bytes == o.direct_bytes;
  }
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
  // After these decisions, on which nothing more follows, no id means anything any more. What was
  // announced and is not decided counts as not announced, as with a schedule.
  bool forgets = false;
  Policy policy = {};
};
uint64_t OperationsIn(const Response& response);

// Bytes are little endian, lengths are checked before use, anything odd is an error (kAborted)
// naming the field. Compact: a cached announcement or decision is a few bytes (varints). Encode
// appends to `out`. Names longer than kMaxNameBytes, shapes of more than kMaxDims or with negative
// dimensions must be refused before they come here.
void Encode(const AnnounceMessage& message, std::string* out);
Status Decode(std::string_view bytes, AnnounceMessage* message);
void Encode(const Response& response, std::string* out);
Status Decode(std::string_view bytes, Response* response);

}  // namespace hvd::negotiate
