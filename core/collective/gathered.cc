#include "collective/gathered.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "collective/kernels/kernels.h"
#include "collective/piece_stream.h"
#include "collective/transport_collectives.h"

namespace hvd {

namespace {

// A stretch of the data, and how the groups of an exchange combine it (links/plan.h): as many
// neighbours as a radix says, level by level.
struct Part {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<int> radices;
};

// What is combined with what.
struct Order {
  std::vector<std::vector<int>> groups;  // of members that come first, each group by itself
  bool reduces_within = false;           // else each group is one member, whose input is taken
  std::vector<Part> parts;
};

class OrderedAllreduce {
 public:
  OrderedAllreduce(const CollectiveSpec& spec, Order order)
      : inputs_(spec.gathered),
        stream_(spec.pieces),
        reduction_(spec.reduction),
        element_(static_cast<int64_t>(SizeOf(spec.reduction.dtype))),
        order_(std::move(order)),
        result_(static_cast<size_t>(stream_.bytes())) {}

  void Run() {
    for (const Part& part : order_.parts) Reduce(part);
    stream_.Unpack(0, stream_.bytes(), result_.data());
  }

 private:
  using Stretches = std::vector<const void*>;

  void Reduce(const Part& part) {
    bytes_ = part.end - part.begin;
    Stretches values;
    for (const std::vector<int>& group : order_.groups) {
      const Stretches inputs = InputsOf(group, part.begin);
      values.push_back(order_.reduces_within ? Combined(reduction_.First(), inputs) : inputs[0]);
    }
    FoldIn(part, &values);
    for (size_t level = 0; level + 1 < part.radices.size(); ++level)
      Level(static_cast<size_t>(part.radices[level]), &values);
    Store(reduction_.Last(), values, result_.data() + part.begin);
    scratch_.clear();
  }

  Stretches InputsOf(const std::vector<int>& group, int64_t begin) const {
    Stretches inputs;
    for (const int member : group)
      inputs.push_back(inputs_.data() + member * stream_.bytes() + begin);
    return inputs;
  }

  // Those outside the core have sent their data to one in it.
  void FoldIn(const Part& part, Stretches* values) {
    size_t core = 1;
    for (const int radix : part.radices) core *= static_cast<size_t>(radix);
    for (size_t outside = core; outside < values->size(); ++outside) {
      const void*& server = (*values)[outside - core];
      server = Combined(reduction_.Between(), {server, (*values)[outside]});
    }
    values->resize(core);
  }

  void Level(size_t radix, Stretches* values) {
    Stretches combined;
    for (auto group = values->begin(); group != values->end(); group += radix)
      combined.push_back(Combined(reduction_.Between(), {group, group + radix}));
    *values = std::move(combined);
  }

  const void* Combined(const Reduction& reduction, const Stretches& values) {
    std::vector<std::byte>& to = scratch_.emplace_back(static_cast<size_t>(bytes_));
    Store(reduction, values, to.data());
    return to.data();
  }

  void Store(const Reduction& reduction, const Stretches& values, void* to) const {
    kernels::Reduce(reduction, values.data(), static_cast<int>(values.size()), &to, 1,
                    bytes_ / element_);
  }

  const std::vector<std::byte>& inputs_;
  const PieceStream stream_;
  const Reduction reduction_;
  const int64_t element_;
  const Order order_;
  std::vector<std::byte> result_;
  int64_t bytes_ = 0;                           // of the part
  std::deque<std::vector<std::byte>> scratch_;  // what was combined of it so far
};

bool IsFlat(const ExchangePlan& plan, int members) {
  return plan.radices.size() == 1 && plan.core() == members;
}

}  // namespace

// All members in rank order.
void CombineOnHost(const CollectiveSpec& spec, int members) {
  const auto element = static_cast<int64_t>(SizeOf(spec.reduction.dtype));
  int64_t bytes = 0;
  for (const Piece& piece : spec.pieces) bytes += piece.bytes;
  std::vector<const void*> inputs;
  inputs.reserve(static_cast<size_t>(members));
  int64_t at = 0;
  for (const Piece& piece : spec.pieces) {
    inputs.clear();
    for (int member = 0; member < members; ++member)
      inputs.push_back(spec.gathered.data() + member * bytes + at);
    void* const output = piece.output;
    kernels::Reduce(spec.reduction, inputs.data(), members, &output, 1, piece.bytes / element);
    at += piece.bytes;
  }
}

void CombineOverLinks(const Communicator& comm, const CollectiveSpec& spec) {
  const int64_t bytes = PieceStream(spec.pieces).bytes();
  const auto plan = PlanOfAllreduce(comm, bytes, spec.direct_bytes);
  if (plan == nullptr || IsFlat(*plan, comm.size())) return CombineOnHost(spec, comm.size());
  Order order;
  for (int member = 0; member < comm.size(); ++member) order.groups.push_back({member});
  order.reduces_within = spec.reduction.prescale != 1.0;
  order.parts = {{0, bytes, plan->radices}};
  OrderedAllreduce(spec, std::move(order)).Run();
}

void CombineOnHosts(const Hierarchy& hierarchy, const CollectiveSpec& spec) {
  const Topology& topology = hierarchy.topology;
  const Lanes lanes(topology, hierarchy.comm.position);
  const int64_t bytes = PieceStream(spec.pieces).bytes();
  Order order;
  for (int host = 0; host < topology.hosts(); ++host) {
    std::vector<int>& group = order.groups.emplace_back();
    for (const Position member : topology.OnHost(host)) group.push_back(member.value());
  }
  order.reduces_within = topology.hosts() < topology.size() || spec.reduction.prescale != 1.0;
  for (int64_t begin = 0; begin < bytes; begin += lanes.Bytes(bytes)) {
    const int64_t end = std::min(begin + lanes.Bytes(bytes), bytes);
    const ExchangePlan plan = CheapestPlan(topology.hosts(), end - begin, hierarchy.comm.costs);
    order.parts.push_back({begin, end, plan.radices});
  }
  OrderedAllreduce(spec, std::move(order)).Run();
}

}  // namespace hvd
