#include "collective/adasum.h"

#include <algorithm>

#include "collective/kernels/adasum.h"
#include "collective/piece_stream.h"
#include "collective/transport_collectives.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

using Round = std::vector<TreePair>;

// Over links, dots go directly from everybody to everybody: nobody is through before all have sent
// all, which is what lets the next collective of the set follow at once (see MakePairwiseAlltoall).
constexpr size_t kPairsAtOnce = 128;
static_assert(kPairsAtOnce * sizeof(Dots) <= static_cast<size_t>(kDirectBytes));

std::vector<Round> RoundsOf(int size) {
  std::vector<Round> rounds;
  for (const Round& level : AdasumTree(size)) {
    for (size_t i = 0; i < level.size(); i += kPairsAtOnce) {
      const size_t end = std::min(i + kPairsAtOnce, level.size());
      rounds.emplace_back(&level[i], &level[i] + (end - i));
    }
  }
  return rounds;
}

// What the other vector takes away from one of squared length `square`.
double Share(double ab, double square) { return square == 0.0 ? 1.0 : 1.0 - ab / (2.0 * square); }

class Adasum : public StepMachine {
 public:
  Adasum(const CollectiveSpec& spec, int rank, int size, ScratchPool* scratch,
         const StartCollective& start)
      : rank_(rank),
        size_(size),
        element_(static_cast<int64_t>(SizeOf(spec.reduction.dtype))),
        reduction_(spec.reduction),
        kernels_(*AdasumKernelsFor(spec.reduction.dtype)),
        piece_(spec.pieces[0]),
        slice_(EvenPart(piece_.bytes / element_, rank, size)),
        rounds_(RoundsOf(size)) {
    const size_t elements = static_cast<size_t>(slice_.length() * size);
    const size_t work = elements * kernels_.work_bytes;
    const bool converts = kernels_.work_bytes != static_cast<size_t>(element_);
    status_ = scratch->Borrow(work + (converts ? elements * static_cast<size_t>(element_) : 0),
                              &scratch_);
    if (!status_.ok()) return;
    work_ = scratch_.data();
    raw_ = converts ? work_ + work : work_;
    StartParts(spec.sequence, start);
  }

 private:
  enum class Stage { kExchange, kLoad, kMeasure, kShare, kCombine, kStore, kGather, kDone };

  Step TakeStep() override {
    switch (stage_) {
      case Stage::kExchange:
        return Carry(Stage::kLoad);
      case Stage::kLoad:
        return Work(static_cast<size_t>(size_), Stage::kMeasure);
      case Stage::kMeasure:
        return Work(rounds_[round_].size(), Stage::kShare);
      case Stage::kShare:
        return Carry(Stage::kCombine);
      case Stage::kCombine:
        return Work(rounds_[round_].size(),
                    round_ + 1 < rounds_.size() ? Stage::kMeasure : Stage::kStore);
      case Stage::kStore:
        return Work(1, Stage::kGather);
      default:
        return Carry(Stage::kDone);
    }
  }

  // All parts are started with the operation, because the collectives of a set must be started in
  // one order on every member, whatever else it starts in the meantime.
  //
  // Over links a frame names its collective by set and sequence. The parts have the operation's
  // number with their own above 48 bits, which no count of operations reaches.
  void StartParts(uint64_t sequence, const StartCollective& start) {
    CollectiveSpec part;
    const auto add = [&](OpKind kind, const Piece& piece) {
      part.kind = kind;
      part.sequence = sequence | static_cast<uint64_t>(parts_.size()) << 48;
      part.pieces = {piece};
      parts_.push_back(start(part));
      part.shares.clear();
      part.senders.clear();
    };
    std::vector<int64_t> slices;
    for (int rank = 0; rank < size_; ++rank) {
      slices.push_back(EvenPart(piece_.bytes / element_, rank, size_).length() * element_);
    }
    AddAlikeRows(slices, rank_, &part);
    add(OpKind::kAlltoall, {piece_.input, raw_, piece_.bytes});
    size_t most = 0;
    for (const Round& round : rounds_) most = std::max(most, round.size());
    dots_.resize(most);
    auto* dots = reinterpret_cast<std::byte*>(dots_.data());
    part.reduction = {DataType::kFloat64, ReduceOp::kSum, 1.0, 1.0, 1};
    for (const Round& round : rounds_) {
      add(OpKind::kAllreduce, {dots, dots, static_cast<int64_t>(round.size() * sizeof(Dots))});
    }
    part.shares.push_back({{}, std::move(slices)});
    add(OpKind::kAllgather, {Result(), piece_.output, slice_.length() * element_});
  }

  // Advances the current part; after it comes `next`.
  Step Carry(Stage next) {
    const Step step = parts_[part_]->Advance();
    if (step == Step::kFailed) status_ = parts_[part_]->status();
    if (step != Step::kDone) return step;
    ++part_;
    Enter(next);
    return next == Stage::kDone ? Step::kDone : Step::kProgressed;
  }

  // Does the next stretch of one of the stage's `items`; after them comes `next`.
  Step Work(size_t items, Stage next) {
    if (slice_.length() > 0 && item_ < items) {
      // Two are read and one is written; the fourth is room for what is not in the work type.
      const auto most = static_cast<int64_t>(kStepBytes / 4 / kernels_.work_bytes);
      const int64_t length = std::min(most, slice_.length() - at_);
      failpoint::Hit("chunk");
      WorkOn(item_, length);
      at_ += length;
      if (at_ < slice_.length()) return Step::kProgressed;
      at_ = 0;
      if (++item_ < items) return Step::kProgressed;
    }
    if (stage_ == Stage::kCombine) ++round_;
    Enter(next);
    return Step::kProgressed;
  }

  void Enter(Stage stage) {
    stage_ = stage;
    item_ = 0;
    if (stage == Stage::kMeasure) std::fill(dots_.begin(), dots_.end(), Dots{});
  }

  void WorkOn(size_t item, int64_t length) {
    if (stage_ == Stage::kLoad) {
      const std::byte* raw = raw_ + (static_cast<int64_t>(item) * slice_.length() + at_) * element_;
      return kernels_.load(raw, Vector(static_cast<int>(item)), length, reduction_.prescale);
    }
    if (stage_ == Stage::kStore) {
      return kernels_.store(Vector(0), Result() + at_ * element_, length, reduction_.postscale);
    }
    const TreePair pair = rounds_[round_][item];
    Dots& dots = dots_[item];
    if (stage_ == Stage::kMeasure) {
      return kernels_.measure(Vector(pair.into), Vector(pair.from), length, &dots);
    }
    kernels_.combine(Vector(pair.into), Vector(pair.from), length, Share(dots.ab, dots.aa),
                     Share(dots.ab, dots.bb));
  }

  // Where the work on a rank's vector goes on.
  std::byte* Vector(int rank) const {
    return work_ + (rank * slice_.length() + at_) * static_cast<int64_t>(kernels_.work_bytes);
  }
  std::byte* Result() const { return piece_.output + slice_.begin * element_; }

  const int rank_;
  const int size_;
  const int64_t element_;
  const Reduction reduction_;
  const AdasumKernels& kernels_;
  const Piece piece_;
  const Range slice_;  // the own one, in elements
  const std::vector<Round> rounds_;
  ScratchPool::Lease scratch_;
  std::byte* work_ = nullptr;  // this rank's slice of every rank's vector, in the work type
  std::byte* raw_ = nullptr;   // the same as it arrives
  std::vector<Dots> dots_;     // of the round's pairs
  std::vector<std::unique_ptr<StepMachine>>
      parts_;  // alltoall, an allreduce for every round, allgather
  Stage stage_ = Stage::kExchange;
  size_t part_ = 0;
  size_t round_ = 0;
  size_t item_ = 0;  // vector or pair that is worked on
  int64_t at_ = 0;   // elements of it that are done
};

}  // namespace

std::vector<std::vector<TreePair>> AdasumTree(int size) {
  int power = 1;
  while (power * 2 <= size) power *= 2;
  std::vector<std::vector<TreePair>> levels;
  if (power < size) levels.emplace_back();
  for (int rank = power; rank < size; ++rank) levels.back().push_back({rank - power, rank});
  for (int distance = 1; distance < power; distance *= 2) {
    levels.emplace_back();
    for (int rank = 0; rank < power; rank += 2 * distance)
      levels.back().push_back({rank, rank + distance});
  }
  return levels;
}

std::unique_ptr<StepMachine> MakeAdasum(const CollectiveSpec& spec, int rank, int size,
                                        std::shared_ptr<ScratchPool> scratch,
                                        StartCollective start) {
  if (spec.pieces.size() != 1)
    return MakeFailed(Status::Internal("Adasum takes one tensor at a time"));
  if (!IsFloating(spec.reduction.dtype)) {
    return MakeFailed(Status::Internal(std::string("Adasum of ") + Name(spec.reduction.dtype)));
  }
  return std::make_unique<Adasum>(spec, rank, size, scratch.get(), start);
}

}  // namespace hvd
