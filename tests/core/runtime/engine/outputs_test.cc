#include <numeric>
#include <vector>

#include "check.h"
#include "cluster.h"
#include "ranks.h"

// Outputs that the caller gives to operations whose result has a size of its own.
namespace hvd::test {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kLengths[] = {1, 7, 5000, 100000};

std::byte* Bytes(std::vector<float>* data) { return reinterpret_cast<std::byte*>(data->data()); }

int64_t BytesOf(const std::vector<float>& data) {
  return static_cast<int64_t>(data.size() * sizeof(float));
}

// One tensor of `rows` rows.
Entry EntryOf(OpKind kind, int64_t rows, int64_t columns, std::vector<float>* input,
              std::vector<float>* output) {
  Entry entry;
  entry.request.kind = kind;
  entry.request.tensors = {{DataType::kFloat32, {rows, columns}}};
  if (kind == OpKind::kAlltoall) entry.request.splits.assign(kRanks, rows / kRanks);
  entry.buffers.push_back({Bytes(input), BytesOf(*input), Bytes(output), BytesOf(*output)});
  return entry;
}

// What `rank` brings.
std::vector<float> Data(int rank, int64_t length) {
  std::vector<float> data(static_cast<size_t>(length));
  std::iota(data.begin(), data.end(), static_cast<float>(1000 * rank));
  return data;
}

TEST(Outputs, ThatFitAreFilled) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(kRanks, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (const int64_t length : kLengths) {
        std::vector<float> part = Data(rank, length);
        std::vector<float> whole(static_cast<size_t>(kRanks * length));
        HandlePtr handle;
        ASSERT_OK(Run(engine, EntryOf(OpKind::kAllgather, 1, length, &part, &whole), &handle));
        EXPECT_TRUE(handle->outputs.empty());
        std::vector<float> exchanged(whole.size());
        ASSERT_OK(
            Run(engine, EntryOf(OpKind::kAlltoall, kRanks, length, &whole, &exchanged), &handle));
        ASSERT_EQ(handle->outputs.size(), size_t{1});  // how many rows each has sent
        EXPECT_EQ(handle->outputs[0].dtype, DataType::kInt64);
        EXPECT_EQ(handle->outputs[0].bytes, int64_t{kRanks * sizeof(int64_t)});
        std::vector<float> scattered(part.size());
        ASSERT_OK(Run(engine, EntryOf(OpKind::kReducescatter, kRanks, length, &whole, &scattered)));
        for (int from = 0; from < kRanks; ++from) {
          const auto begin = static_cast<size_t>(from * length);
          EXPECT_EQ(whole[begin], static_cast<float>(1000 * from));
          EXPECT_EQ(whole[begin + part.size() - 1], static_cast<float>(1000 * from + length - 1));
          EXPECT_EQ(exchanged[begin], static_cast<float>(1000 * rank));
        }
        EXPECT_EQ(scattered.front(), static_cast<float>(kRanks * 1000 * rank));
        EXPECT_EQ(scattered.back(), static_cast<float>(kRanks * (1000 * rank + length - 1)));
      }
    });
  }
}

// As an allgather of parameters that are kept in one piece.
TEST(Outputs, MayHaveTheInputOfAnAllgatherAtItsPlace) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(kRanks, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (const int64_t length : kLengths) {
        std::vector<float> whole(static_cast<size_t>(kRanks * length));
        const std::vector<float> part = Data(rank, length);
        std::copy(part.begin(), part.end(), whole.begin() + rank * length);
        std::vector<float> unused(part.size());
        Entry entry = EntryOf(OpKind::kAllgather, 1, length, &unused, &whole);
        entry.buffers[0].input = Bytes(&whole) + rank * BytesOf(part);
        ASSERT_OK(Run(engine, std::move(entry)));
        for (int from = 0; from < kRanks; ++from) {
          const auto begin = whole.begin() + from * length;
          EXPECT_TRUE(std::vector<float>(begin, begin + length) == Data(from, length));
        }
      }
    });
  }
}

// It turns out when all ranks take part already, so this rank does, too.
TEST(Outputs, OfAnotherSizeAreLeftAlone) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(kRanks, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<float> part = Data(rank, 4);
      std::vector<float> wrong(rank == 1 ? 5 : 12, -1.0f);
      HandlePtr handle;
      ASSERT_OK(Run(engine, EntryOf(OpKind::kAllgather, 1, 4, &part, &wrong), &handle));
      EXPECT_EQ(handle->outputs.size(), static_cast<size_t>(rank == 1 ? 1 : 0));
      EXPECT_EQ(wrong[4], rank == 1 ? -1.0f : 1000.0f);
      if (rank == 1) EXPECT_EQ(handle->outputs[0].bytes, int64_t{48});
    });
  }
}

// As tied weights do, and parts of one tensor.
TEST(Outputs, OfAllreducesMayShareMemory) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(kRanks, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (const int64_t length : {1, 7, 5000, 30000, 100000, 1000000}) {
        const auto count = static_cast<size_t>(length);
        for (const bool grouped : {true, false}) {
          std::vector<float> data(count + count / 3, static_cast<float>(10 * rank + 1));
          const int64_t bytes = length * static_cast<int64_t>(sizeof(float));
          std::vector<Entry> entries(grouped ? 1 : 3);
          for (int t = 0; t < 3; ++t) {  // the first two are one
            Entry& entry = entries[grouped ? 0 : static_cast<size_t>(t)];
            entry.request.reduce_op = ReduceOp::kAverage;
            entry.request.tensors.push_back({DataType::kFloat32, {length}});
            std::byte* const begin = Bytes(&data) + (t == 2 ? BytesOf(data) - bytes : 0);
            entry.buffers.push_back(TensorBuffer::InPlace(begin, bytes));
          }
          std::vector<HandlePtr> handles(entries.size());
          for (size_t i = 0; i < entries.size(); ++i)
            ASSERT_OK(Submit(engine, std::move(entries[i]), &handles[i]));
          for (const HandlePtr& handle : handles) ASSERT_OK(engine.Wait(handle, -1, nullptr));
          EXPECT_TRUE(data == std::vector<float>(data.size(), 11.0f));
        }
      }
    });
  }
}

// In whichever order they start: of one average another is the same.
TEST(Outputs, OfAnAllreduceMayBeTheInputOfAnother) {
  for (const Wires wires : kAllWires) {
    Cluster cluster(kRanks, wires);
    cluster.Run([&](Engine& engine, int rank) {
      for (const int64_t length : {1, 7, 5000, 30000, 100000, 1000000}) {
        for (const bool in_place_first : {true, false}) {
          const auto count = static_cast<size_t>(length);
          std::vector<float> data(count, static_cast<float>(10 * rank + 1));
          std::vector<float> result(count);
          std::vector<HandlePtr> handles(2);
          for (int t = 0; t < 2; ++t) {
            std::vector<float>* const output = (t == 0) == in_place_first ? &data : &result;
            Entry entry;
            entry.request.reduce_op = ReduceOp::kAverage;
            entry.request.tensors.push_back({DataType::kFloat32, {length}});
            entry.buffers.push_back({Bytes(&data), BytesOf(data), Bytes(output), BytesOf(*output)});
            ASSERT_OK(Submit(engine, std::move(entry), &handles[static_cast<size_t>(t)]));
          }
          for (const HandlePtr& handle : handles) ASSERT_OK(engine.Wait(handle, -1, nullptr));
          EXPECT_TRUE(data == std::vector<float>(count, 11.0f));
          EXPECT_TRUE(result == data);
        }
      }
    });
  }
}

TEST(Barrier, ComesAfterWhatWasStartedBefore) {
  constexpr int kTensors = 50;
  for (const Wires wires : kAllWires) {
    Cluster cluster(kRanks, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::vector<std::vector<float>> data(kTensors);
      std::vector<HandlePtr> handles(kTensors);
      for (int t = 0; t < kTensors; ++t) {
        data[t].assign(100, static_cast<float>(rank));
        Entry entry = AllreduceEntry("", &data[t]);
        ASSERT_OK(Submit(engine, std::move(entry), &handles[t]));
      }
      ASSERT_OK(Barrier(engine));
      for (const HandlePtr& handle : handles) EXPECT_TRUE(handle->done.load());
    });
  }
}

}  // namespace
}  // namespace hvd::test
