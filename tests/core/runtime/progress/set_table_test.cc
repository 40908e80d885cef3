// Which process sets a round looks at.

#include "runtime/progress/set_table.h"

#include <memory>

#include "backend/host/host_backend.h"
#include "check.h"
#include "transport/inproc/fabric.h"

namespace hvd::test {
namespace {

// Sets of which this rank is a leaf, or the root, whose other member never says anything.
class Table {
 public:
  explicit Table(int rank, int sets) {
    transport_ = fabric_.MakeTransport(0, GlobalRank(rank), waker_, false);
    for (int id = 0; id < sets; ++id) sets_.Add(MakeSet(static_cast<uint32_t>(id), rank));
  }

  HandlePtr Submit(uint32_t id) {
    Entry entry;
    entry.process_set = id;
    entry.request.kind = OpKind::kBarrier;
    auto handle = std::make_shared<Handle>(std::move(entry));
    EXPECT_TRUE(queue_.Push(handle).ok());
    sets_.Activate(sets_.Find(id));
    sets_.Find(id)->Add(handle);
    return handle;
  }

  // As a round does.
  void Look() {
    bool moved = false;
    for (ProcessSet* set : sets_.active()) EXPECT_TRUE(set->Tick(++now_, &moved).ok());
    sets_.Retire();
    EXPECT_TRUE(transport_->Progress(&moved).ok());
  }

  SetTable& sets() { return sets_; }

 private:
  std::unique_ptr<ProcessSet> MakeSet(uint32_t id, int rank) {
    ProcessSetOptions options;
    options.id = id;
    options.members = Members::Everybody(2);
    options.rank = GlobalRank(rank);
    ProcessSetWires wires;
    wires.topology = Topology::OneHost(2, false);
    wires.control = MakeTreeControl(nullptr, transport_.get(), id, options.members, wires.topology,
                                    Position(rank));
    wires.backends.push_back(
        MakeTransportBackend(transport_.get(), id, options.members, Position(rank)));
    return std::make_unique<ProcessSet>(options, std::move(wires), waker_, &queue_, &counters_,
                                        nullptr);
  }

  inproc::Fabric fabric_{2};
  Waker waker_;
  Queue queue_;
  Counters counters_;
  std::unique_ptr<Transport> transport_;
  SetTable sets_;
  int64_t now_ = 0;
};

TEST(SetTable, HasNoneActiveBeforeSomethingIsSubmitted) {
  Table table(1, 100);
  EXPECT_TRUE(table.sets().active().empty());
}

TEST(SetTable, KeepsThoseActiveThatHaveSomethingInFlight) {
  Table table(1, 100);
  table.Submit(7);
  table.Submit(7);
  table.Submit(42);
  for (int round = 0; round < 5; ++round) table.Look();
  EXPECT_EQ(table.sets().active().size(), size_t{2});
}

TEST(SetTable, LooksAtRelaysOnceWithoutThat) {
  Table leaf(1, 10);
  leaf.sets().ActivateRelays();
  EXPECT_TRUE(leaf.sets().active().empty());
  Table root(0, 10);
  root.sets().ActivateRelays();
  EXPECT_EQ(root.sets().active().size(), size_t{10});
  root.Look();
  EXPECT_TRUE(root.sets().active().empty());
}

TEST(SetTable, FindsThemByTheirNumbers) {
  Table table(1, 3);
  table.Submit(1);
  EXPECT_EQ(table.sets().Find(1)->id(), 1u);
  const std::unique_ptr<ProcessSet> removed = table.sets().Remove(1);
  EXPECT_TRUE(removed != nullptr && table.sets().Find(1) == nullptr);
  EXPECT_TRUE(table.sets().active().empty());
  EXPECT_TRUE(table.sets().Remove(1) == nullptr);
}

}  // namespace
}  // namespace hvd::test
