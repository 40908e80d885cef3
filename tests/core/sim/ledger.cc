#include "sim/ledger.h"

#include <algorithm>
#include <string>

namespace hvd::sim {

namespace {

constexpr size_t kMostOps = 1 << 12;
constexpr size_t kStride = 1 << 10;  // more bytes than a tensor has
std::byte memory[kMostOps * kStride];

// The operation whose memory this is; kMostOps: that of a rank that has joined.
size_t OpAt(const std::byte* address) {
  if (address < memory || address >= memory + sizeof memory) return kMostOps;
  return static_cast<size_t>(address - memory) / kStride;
}

std::vector<size_t> OpsOf(const CollectiveSpec& spec) {
  std::vector<size_t> ops;
  for (const Piece& piece : spec.pieces) ops.push_back(OpAt(piece.input));
  return ops;
}

bool HasOwnSizes(OpKind kind) { return kind == OpKind::kAllgather || kind == OpKind::kAlltoall; }

}  // namespace

std::byte* Ledger::MemoryOf(size_t op) { return memory + op * kStride; }

void Ledger::Submitted(int rank, const Submission& submission, size_t step) {
  if (!plan_->Fails(submission, step)) submitted_[{submission.op, rank}].push_back(step);
}

void Ledger::Started(int rank, size_t set, const CollectiveSpec& spec) {
  Meeting& meeting = meetings_[{set, spec.sequence}];
  if (meeting.started == 0) {
    meeting.spec = spec;
    meeting.ops = OpsOf(spec);
  } else {
    CheckSame(rank, meeting, spec);
  }
  for (size_t i = 0; i < meeting.ops.size(); ++i) {
    if (meeting.ops[i] == kMostOps) meeting.ops[i] = OpsOf(spec)[i];
  }
  if (++meeting.started < plan_->sets[set].members.size()) return;
  CheckSubmitted(meeting.ops);
  const Nanos takes = static_cast<Nanos>(world_->random().Below(30'000));
  meeting.complete_at = world_->now() + takes;
  for (const int member : plan_->sets[set].members) {
    world_->Wake(member, meeting.complete_at + static_cast<Nanos>(world_->random().Below(5000)));
  }
}

Nanos Ledger::CompleteAt(size_t set, uint64_t sequence) const {
  return meetings_.at({set, sequence}).complete_at;
}

// Whoever takes part has submitted it as often as it has run.
void Ledger::CheckSubmitted(const std::vector<size_t>& ops) {
  for (const size_t op : ops) {
    if (op == kMostOps) Violate("a collective is of no operation of any rank");
    const size_t time = run_[op]++;
    size_t step = 0;
    bool known = false;
    for (const int rank : plan_->sets[plan_->ops[op].set].members) {
      const std::vector<size_t>& steps = submitted_[{op, rank}];
      if (steps.size() <= time) continue;
      if (known && steps[time] != step) Violate("operations of different steps have met");
      step = steps[time];
      known = true;
    }
    if (!known) Violate("an operation has run more often than it was submitted");
    for (const int rank : plan_->Present(plan_->ops[op], step)) {
      if (submitted_[{op, rank}].size() <= time)
        Violate("an operation has run that a rank had not submitted");
    }
  }
}

void Ledger::CheckSame(int rank, const Meeting& meeting, const CollectiveSpec& spec) const {
  const CollectiveSpec& first = meeting.spec;
  const std::string who = "rank " + std::to_string(rank) + " starts ";
  if (spec.kind != first.kind) Violate(who + "another kind of collective");
  const bool same_root = spec.kind != OpKind::kBroadcast || spec.root == first.root;
  if (!same_root || spec.direct_bytes != first.direct_bytes) Violate(who + "it differently");
  // Who has joined has another rank's request, with whatever that says of what its kind does not
  // use.
  const bool same_reduction =
      !Reduces(spec.kind) || (spec.reduction.op == first.reduction.op &&
                              spec.reduction.divisor == first.reduction.divisor);
  if (!same_reduction) Violate(who + "another reduction");
  if (spec.rank_bytes != first.rank_bytes) Violate(who + "it with other sizes");
  if (spec.pieces.size() != first.pieces.size()) Violate(who + "it with more or fewer tensors");
  const std::vector<size_t> ops = OpsOf(spec);
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool same = ops[i] == meeting.ops[i] || ops[i] == kMostOps || meeting.ops[i] == kMostOps;
    if (!same) Violate(who + "it with other tensors");
    if (!HasOwnSizes(spec.kind) && spec.pieces[i].bytes != first.pieces[i].bytes) {
      Violate(who + "it with other bytes");
    }
  }
}

void Ledger::Ended(int rank, const Submission& submission, size_t step, bool failed) const {
  if (failed == plan_->Fails(submission, step)) return;
  Violate("operation " + std::to_string(submission.op) + " of step " + std::to_string(step) +
          (failed ? " fails" : " succeeds") + " on rank " + std::to_string(rank));
}

}  // namespace hvd::sim
