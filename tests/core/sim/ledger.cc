#include "sim/ledger.h"

#include <algorithm>
#include <string>

namespace hvd::sim {

namespace {

constexpr size_t kMostOps = 1 << 12;
constexpr size_t kTensors = 4;      // of an operation at most
constexpr size_t kStride = 1 << 8;  // more bytes than a tensor has whose bytes anybody looks at
constexpr size_t kNobodys = kMostOps * kTensors;
// Of such a tensor each of so many ranks has a part of its own, and the ranks after them the same.
constexpr size_t kParts = 16;
constexpr size_t kPart = kStride / kParts;
std::byte memory[kNobodys * kStride + kStride];

// The tensor whose memory this is, of all operations; kNobodys: that of a rank that has joined.
size_t TensorAt(const std::byte* address) {
  if (address < memory || address >= memory + sizeof memory) return kNobodys;
  return static_cast<size_t>(address - memory) / kStride;
}
// By the result where the input is kept elsewhere, as of two in flight that share their memory.
size_t TensorOf(const Piece& piece) {
  const size_t tensor = TensorAt(piece.input);
  return tensor == kNobodys ? TensorAt(piece.output) : tensor;
}
bool BeginsOp(size_t tensor) { return tensor != kNobodys && tensor % kTensors == 0; }

std::vector<size_t> OpsOf(const CollectiveSpec& spec) {
  std::vector<size_t> ops;
  for (const Piece& piece : spec.pieces) ops.push_back(TensorOf(piece));
  return ops;
}

// Of a tensor on a rank in a step: two that could be taken for each other have different ones.
std::byte MarkOf(size_t tensor, int rank, size_t step) {
  return static_cast<std::byte>(tensor * 7 + static_cast<size_t>(rank) % kParts * 16 + step * 5 +
                                1);
}

// Of a rank in a set.
size_t PlaceOf(const std::vector<int>& members, int rank) {
  const auto at = std::lower_bound(members.begin(), members.end(), rank);
  return static_cast<size_t>(at - members.begin());
}

bool HasOwnSizes(OpKind kind) { return kind == OpKind::kAllgather || kind == OpKind::kAlltoall; }

}  // namespace

std::byte* Ledger::MemoryOf(size_t op, size_t tensor, int rank) {
  return memory + (op * kTensors + tensor) * kStride + static_cast<size_t>(rank) % kParts * kPart;
}

void Ledger::MarkMemory(size_t op, size_t tensor, int rank, size_t step) {
  std::fill_n(MemoryOf(op, tensor, rank), kPart, MarkOf(op * kTensors + tensor, rank, step));
}

void Ledger::Submitted(int rank, const Submission& submission, size_t step) {
  costs_[step].submitted = world_->now();
  if (!plan_->Fails(submission, step)) submitted_[{submission.op, rank}].push_back(step);
}

void Ledger::Started(int rank, size_t set, const CollectiveSpec& spec) {
  Meeting& meeting = meetings_[{set, spec.sequence}];
  if (meeting.started == 0) {
    meeting.spec = spec;
    meeting.ops = IsCounts(spec) ? std::vector<size_t>() : OpsOf(spec);
  } else {
    CheckSame(rank, meeting, spec);
  }
  const std::vector<int>& members = plan_->sets[set].members;
  meeting.counts.resize(IsCounts(spec) ? members.size() : 0);
  meeting.exchanges.resize(spec.kind == OpKind::kAlltoall && !IsCounts(spec) ? members.size() : 0);
  if (!meeting.counts.empty()) meeting.counts[PlaceOf(members, rank)] = spec.pieces.front();
  if (!meeting.exchanges.empty()) meeting.exchanges[PlaceOf(members, rank)] = spec;
  for (size_t i = 0; i < meeting.ops.size(); ++i) {
    if (meeting.ops[i] == kNobodys) meeting.ops[i] = OpsOf(spec)[i];
  }
  if (!IsCounts(spec)) NoteSteps(rank, spec, &meeting);
  if (!spec.gathered.empty()) CheckGathered(set, spec, meeting);
  if (++meeting.started < members.size()) return;
  CarryCounts(meeting);
  CheckExchanges(meeting);
  CheckSubmitted(meeting);
  meeting.counts = {};
  meeting.exchanges = {};
  const Nanos takes = plan_->computes >= 0 ? 0 : static_cast<Nanos>(world_->random().Below(30'000));
  meeting.complete_at = world_->now() + takes;
  for (const int member : members) {
    const uint64_t late = plan_->computes >= 0 ? 1 : world_->random().Below(5000);
    world_->Wake(member, meeting.complete_at + static_cast<Nanos>(late));
  }
}

bool Ledger::IsCounts(const CollectiveSpec& spec) {
  return spec.kind == OpKind::kAlltoall && spec.device == kHostDevice;
}

void Ledger::CarryCounts(const Meeting& meeting) {
  const size_t members = meeting.counts.size();
  for (size_t from = 0; from < members; ++from) {
    const auto part = static_cast<size_t>(meeting.counts[from].bytes) / members;
    for (size_t to = 0; to < members; ++to) {
      std::copy_n(meeting.counts[from].input + to * part, part,
                  meeting.counts[to].output + from * part);
    }
  }
}

// What each sends to each is what that one expects, and all know the same of it.
void Ledger::CheckExchanges(const Meeting& meeting) {
  const size_t members = meeting.exchanges.size();
  for (size_t from = 0; from < members; ++from) {
    const CollectiveSpec& sent = meeting.exchanges[from];
    for (size_t to = 0; to < members; ++to) {
      const CollectiveSpec& got = meeting.exchanges[to];
      for (size_t i = 0; i < sent.shares.size(); ++i) {
        if (sent.shares[i].to[to] != got.shares[i].from[from])
          Violate("a rank expects other rows than it is sent");
      }
      if (got.senders[from].stream != sent.senders[from].stream ||
          got.senders[from].largest != sent.senders[from].largest)
        Violate("ranks know different things of one sender");
    }
  }
}

Nanos Ledger::CompleteAt(size_t set, uint64_t sequence) const {
  return meetings_.at({set, sequence}).complete_at;
}

// What a rank starts is the oldest that it has submitted, and of the same step as the others'.
void Ledger::NoteSteps(int rank, const CollectiveSpec& spec, Meeting* meeting) {
  const std::vector<size_t> tensors = OpsOf(spec);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!BeginsOp(tensors[i])) continue;
    const std::pair<size_t, int> whose{tensors[i] / kTensors, rank};
    const size_t time = started_[whose]++;
    if (submitted_[whose].size() <= time) Violate("an operation runs that was not submitted");
    const size_t step = submitted_[whose][time];
    auto& [met, ranks] = meeting->steps.emplace(i, std::pair{step, 0}).first->second;
    if (met != step) Violate("operations of different steps have met");
    ++ranks;
  }
}

// What marks have carried here is what each member has submitted for this step.
void Ledger::CheckGathered(size_t set, const CollectiveSpec& spec, const Meeting& meeting) const {
  auto from = spec.gathered.begin();
  for (const int member : plan_->sets[set].members) {
    for (size_t i = 0; i < spec.pieces.size(); ++i) {
      const auto end = from + spec.pieces[i].bytes;
      const auto step = meeting.steps.find(i);  // of others the first tensor may be elsewhere
      const size_t tensor = TensorAt(spec.pieces[i].input);
      // Two unnamed ones, of different steps, may be in flight at once.
      const bool unknown =
          step == meeting.steps.end() || plan_->ops[tensor / kTensors].name.empty();
      const bool right = unknown || std::all_of(from, end, [&](std::byte byte) {
                           return byte == MarkOf(tensor, member, step->second.first);
                         });
      if (!right) Violate("a mark has carried other data than its member's");
      from = end;
    }
  }
  if (from != spec.gathered.end()) Violate("marks have carried more than the inputs");
}

// All have submitted it who take part in its step, and it runs once.
void Ledger::CheckSubmitted(const Meeting& meeting) {
  for (const size_t tensor : meeting.ops) {
    if (tensor == kNobodys) Violate("a collective is of no operation of any rank");
  }
  for (const auto& [place, met] : meeting.steps) {
    const size_t op = meeting.ops[place] / kTensors;
    if (run_[op] > met.first) Violate("an operation has run out of its turn");
    run_[op] = met.first + 1;
    if (plan_->Present(plan_->ops[op], met.first).size() != met.second)
      Violate("an operation has run that a rank had not submitted");
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
  const bool alltoall = spec.kind == OpKind::kAlltoall;
  if (!alltoall && spec.shares != first.shares) Violate(who + "it with other sizes");
  if (spec.pieces.size() != first.pieces.size()) Violate(who + "it with more or fewer tensors");
  if (IsCounts(spec) != IsCounts(first)) Violate(who + "it with or without rows");
  if (IsCounts(spec)) {
    if (spec.pieces[0].bytes != first.pieces[0].bytes) Violate(who + "counts of another length");
    return;
  }
  const std::vector<size_t> ops = OpsOf(spec);
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool same = ops[i] == meeting.ops[i] || ops[i] == kNobodys || meeting.ops[i] == kNobodys;
    if (!same) Violate(who + "it with other tensors");
    if (!HasOwnSizes(spec.kind) && spec.pieces[i].bytes != first.pieces[i].bytes) {
      Violate(who + "it with other bytes");
    }
  }
}

void Ledger::Ended(int rank, const Submission& submission, size_t step, const Status& status) {
  costs_[step].ended = world_->now();
  const bool failed = !status.ok();
  const uint8_t told = plan_->NoticeIn(submission, step);
  const bool told_right = told == 0 || status.message() == Status::Notice(told).message();
  if (failed && (status.code() == Code::kNotice) != (told != 0)) Violate("a notice for an error");
  if (!told_right) Violate("a notice says something else");
  if (failed == plan_->Fails(submission, step)) return;
  Violate("operation " + std::to_string(submission.op) + " of step " + std::to_string(step) +
          (failed ? " fails" : " succeeds") + " on rank " + std::to_string(rank));
}

void Ledger::EndedStep(size_t step, uint64_t messages, uint64_t frames) {
  StepCost& cost = costs_[step];
  cost.messages += messages;
  cost.frames += frames;
  cost.most_messages = std::max(cost.most_messages, messages);
  cost.most_frames = std::max(cost.most_frames, frames);
}

}  // namespace hvd::sim
