#include "set_program.h"

#include <algorithm>
#include <numeric>

#include "random_request.h"

namespace hvd::negotiate {
namespace {

constexpr uint64_t kPool = 8;  // named operations of a set, which come again and again

class Author {
 public:
  explicit Author(uint64_t seed) : random_(seed) { program_.seed = seed; }
  SetProgram Write();

 private:
  int Number(uint64_t below) { return static_cast<int>(random_.Below(below)); }
  std::vector<int> Everybody() const;
  std::vector<int> SomeOf(std::vector<int> ranks);
  void ChangeSets();
  void ChooseActs();
  void WriteAct(int act);
  void WriteStrays(int set, const std::vector<int>& members);
  void Add(int set, int act, Request request);
  Request FromPool(int set, uint64_t k);

  Random random_;
  SetProgram program_;
  std::map<int, std::vector<int>> sets_;
  int next_set_ = 1;  // ids never come again
  Epoch epoch_;
  int most_acts_ = 0;
};

std::vector<int> Author::Everybody() const {
  std::vector<int> ranks(static_cast<size_t>(program_.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<int> Author::SomeOf(std::vector<int> ranks) {
  random_.Shuffle(&ranks);
  ranks.resize(1 + random_.Below(ranks.size()));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Author::ChangeSets() {
  for (auto set = sets_.begin(); set != sets_.end();) {
    const bool removed = set->first != 0 && random_.OneIn(3);
    set = removed ? sets_.erase(set) : std::next(set);
  }
  for (int added = Number(4); added > 0; --added) sets_[next_set_++] = SomeOf(Everybody());
}

void Author::ChooseActs() {
  most_acts_ = Number(4);
  epoch_.acts.assign(static_cast<size_t>(program_.ranks), most_acts_);
  if (random_.OneIn(4)) return;  // all join at once
  for (int& acts : epoch_.acts) acts = Number(static_cast<uint64_t>(most_acts_) + 1);
}

Request Author::FromPool(int set, uint64_t k) {
  Random pool(program_.seed ^ (static_cast<uint64_t>(set) << 20) ^ (k << 8));
  if (random_.OneIn(8)) pool = Random(random_.Next());  // another operation under this name
  Request request =
      RandomRequest(&pool, {OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast,
                            OpKind::kBarrier, OpKind::kAlltoall, OpKind::kReducescatter});
  const std::vector<int>& members = sets_[set];
  if (request.kind == OpKind::kBroadcast)
    request.root = GlobalRank(members[pool.Below(members.size())]);
  return request;
}

void Author::Add(int set, int act, Request request) {
  SetOperation operation;
  operation.set = set;
  operation.act = act;
  operation.request = std::move(request);
  for (int rank : sets_[set]) {
    if (epoch_.acts[static_cast<size_t>(rank)] >= act) operation.ranks.push_back(rank);
  }
  if (operation.ranks.empty()) return;
  const bool has_tensors = operation.request.kind != OpKind::kBarrier;
  if (operation.ranks.size() > 1 && has_tensors && random_.OneIn(10)) {
    operation.odd = operation.ranks[random_.Below(operation.ranks.size())];
  }
  epoch_.operations.push_back(std::move(operation));
}

void Author::WriteAct(int act) {
  for (const auto& [set, members] : sets_) {
    for (uint64_t k = 0; k < kPool; ++k) {
      if (!random_.OneIn(3)) continue;
      Request request = FromPool(set, k);
      request.name = "layer." + std::to_string(k);
      Add(set, act, std::move(request));
    }
    for (int unnamed = Number(3); unnamed > 0; --unnamed) Add(set, act, FromPool(set, kPool));
  }
}

// Operations of which the other members know nothing, and for which nobody waits.
void Author::WriteStrays(int set, const std::vector<int>& members) {
  for (int strays = Number(3); strays > 0; --strays) {
    SetOperation& stray = epoch_.operations.emplace_back();
    stray.set = set;
    stray.request = FromPool(set, kPool + 1);
    stray.request.name = "stray." + std::to_string(strays);
    stray.ranks = SomeOf(members);
    stray.act = 1 + Number(static_cast<uint64_t>(most_acts_) + 1);
    stray.waits = false;
  }
}

SetProgram Author::Write() {
  program_.ranks = 1 + Number(6);
  const uint64_t hosts = random_.OneIn(3) ? 1 : 1 + random_.Below(5);
  for (int rank = 0; rank < program_.ranks; ++rank) program_.hosts.push_back(Number(hosts));
  program_.max_delay = Number(3000);
  program_.options.batch_bytes = random_.OneIn(2) ? 8 << 20 : 1 + Number(20000);
  program_.options.cache_capacity = random_.OneIn(10) ? 0 : random_.OneIn(10) ? 3 : 1 << 16;
  sets_[0] = Everybody();
  for (int epochs = 1 + Number(4); epochs > 0; --epochs) {
    epoch_ = {};
    ChangeSets();
    epoch_.sets = sets_;
    ChooseActs();
    Request barrier;
    barrier.kind = OpKind::kBarrier;
    Add(0, 0, std::move(barrier));
    for (int act = 1; act <= most_acts_; ++act) WriteAct(act);
    for (const auto& [set, members] : sets_) WriteStrays(set, members);
    program_.epochs.push_back(std::move(epoch_));
  }
  return std::move(program_);
}

// Never 0, so that it differs from what a joined member gives.
int64_t Size(uint64_t seed, size_t epoch, size_t operation, int rank, size_t i) {
  const uint64_t mixed =
      (uint64_t{epoch} << 50) ^ (static_cast<uint64_t>(rank) << 40) ^ (operation << 10) ^ i;
  return 1 + static_cast<int64_t>(Random(seed ^ mixed).Below(49));
}

}  // namespace

SetProgram RandomSetProgram(uint64_t seed) { return Author(seed).Write(); }

Request RequestOf(const SetProgram& program, size_t epoch, size_t operation, int rank) {
  const SetOperation& planned = program.epochs[epoch].operations[operation];
  Request request = planned.request;
  const auto size = [&](size_t i) { return Size(program.seed, epoch, operation, rank, i); };
  if (request.kind == OpKind::kAllgather) {
    for (size_t t = 0; t < request.tensors.size(); ++t) request.tensors[t].shape[0] = size(t);
  }
  if (request.kind == OpKind::kAlltoall) {
    const size_t members = program.epochs[epoch].sets.at(planned.set).size();
    for (size_t i = 0; i < members; ++i) request.splits.push_back(size(i));
    request.tensors[0].shape[0] =
        std::accumulate(request.splits.begin(), request.splits.end(), int64_t{0});
  }
  if (rank == planned.odd) request.tensors.push_back({DataType::kFloat32, {1}});
  return request;
}

std::vector<int64_t> SizesOf(const SetProgram& program, size_t epoch, size_t operation) {
  const SetOperation& planned = program.epochs[epoch].operations[operation];
  const std::vector<int>& members = program.epochs[epoch].sets.at(planned.set);
  const bool gathers = planned.request.kind == OpKind::kAllgather;
  const size_t n = members.size();
  const size_t each = gathers ? planned.request.tensors.size() : 0;
  std::vector<int64_t> sizes(n * each, 0);
  for (size_t m = 0; m < n; ++m) {
    if (!std::binary_search(planned.ranks.begin(), planned.ranks.end(), members[m])) continue;
    for (size_t i = 0; i < each; ++i)
      sizes[i * n + m] = Size(program.seed, epoch, operation, members[m], i);
  }
  return sizes;
}

std::string ErrorOf(const SetOperation& operation) {
  if (operation.odd != -1) return "Mismatched number of tensors";
  const Request& request = operation.request;
  const std::vector<int>& ranks = operation.ranks;
  const bool rootless = request.kind == OpKind::kBroadcast &&
                        std::find(ranks.begin(), ranks.end(), request.root.value()) == ranks.end();
  return rootless ? "Root " + Name(request.root) : "";
}

}  // namespace hvd::negotiate
