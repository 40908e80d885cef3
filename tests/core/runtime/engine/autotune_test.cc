// Tuning a running job: the values change between two responses, and the results stay right.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

constexpr int kRanks = 3;
constexpr int kTensors = 24;
constexpr unsigned kSamples = 2 + 10 + 3 * 2;  // warm-up, search, contest

std::string TemporaryFile() {
  return std::filesystem::temp_directory_path() /
         ("hvd_autotune_" + std::to_string(getpid()) + ".csv");
}

Config TuningConfig(const std::string& log) {
  Config config;
  config.fusion_threshold = 0;
  config.cycle_time_ms = 5;
  config.autotune = true;
  config.autotune_log = log;
  config.autotune_warmup_samples = 2;
  config.autotune_steps_per_sample = 3;
  config.autotune_max_samples = 10;
  return config;
}

size_t Elements(int tensor) { return tensor % 8 == 0 ? 30000 : 100 + tensor; }

// One step; every rank submits in an order of its own.
void Step(Engine& engine, int rank, int step) {
  std::vector<std::vector<float>> data(kTensors);
  std::vector<HandlePtr> handles(kTensors);
  for (int i = 0; i < kTensors; ++i) {
    const int t = (i + 7 * rank) % kTensors;
    data[t].assign(Elements(t), static_cast<float>((rank + 1) * (t + step % 5)));
    ASSERT_OK(Submit(engine, AllreduceEntry("t" + std::to_string(t), &data[t]), &handles[t]));
  }
  for (int t = 0; t < kTensors; ++t) {
    ASSERT_OK(engine.Wait(handles[t], kPatienceMs * int64_t{1000}, nullptr));
    const auto expected = static_cast<float>(6 * (t + step % 5));  // 1 + 2 + 3
    EXPECT_EQ(data[t].front(), expected);
    EXPECT_EQ(data[t].back(), expected);
  }
}

// Whether rank 0 has all its samples, known to everybody.
bool Done(Engine& engine, int rank) {
  const auto samples = static_cast<float>(rank == 0 ? engine.CountersNow()["autotune_samples"] : 0);
  std::vector<float> all(1, samples);
  EXPECT_TRUE(Allreduce(engine, "samples", &all).ok());
  return all[0] >= kSamples;
}

std::vector<std::vector<std::string>> ReadCsv(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) rows.back().push_back(cell);
  }
  return rows;
}

void CheckLog(const std::string& path) {
  const auto rows = ReadCsv(path);
  ASSERT_EQ(rows.size(), size_t{kSamples} + 2);
  EXPECT_EQ(rows[0][0], "sample");
  std::set<std::vector<std::string>> values;
  for (size_t row = 1; row < rows.size(); ++row) {
    ASSERT_EQ(rows[row].size(), size_t{6});
    values.insert({rows[row][1], rows[row][2], rows[row][3]});
    if (row > kSamples) continue;
    EXPECT_EQ(rows[row][0], std::to_string(row));
    EXPECT_TRUE(std::stod(rows[row][4]) > 0);
  }
  EXPECT_EQ(rows[1][1], "0");
  EXPECT_EQ(rows[1][2], "5");
  EXPECT_TRUE(values.size() >= 6);
  EXPECT_EQ(rows.back()[4], "");
}

TEST(Autotune, ResultsStayRightWhileValuesChange) {
  for (const Wires wires : kAllWires) {
    const std::string log = TemporaryFile();
    Cluster cluster(kRanks, wires, {}, TuningConfig(log));
    std::vector<uint64_t> collectives(kRanks);
    cluster.Run([&](Engine& engine, int rank) {
      int step = 0;
      uint64_t fewest = kTensors;
      do {
        const uint64_t before = engine.CountersNow()["collectives"];
        Step(engine, rank, step);
        fewest = std::min(fewest, engine.CountersNow()["collectives"] - before);
      } while (++step < 5000 && !Done(engine, rank));
      EXPECT_TRUE(step < 5000);
      EXPECT_TRUE(fewest < kTensors);  // the first values have every tensor go alone
      for (int after = 0; after < 5; ++after) Step(engine, rank, ++step);
      EXPECT_EQ(engine.CountersNow()["autotune_samples"], uint64_t{rank == 0 ? kSamples : 0u});
      collectives[rank] = engine.CountersNow()["collectives"];
    });
    for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(collectives[rank], collectives[0]);
    CheckLog(log);
    std::remove(log.c_str());
  }
}

TEST(Autotune, ALogThatCannotBeWrittenStopsNothing) {
  Cluster cluster(2, Wires::kInprocWindow, {}, TuningConfig("/nowhere/at/all/autotune.csv"));
  cluster.Run([](Engine& engine, int rank) {
    std::vector<float> data(10, static_cast<float>(rank + 1));
    ASSERT_OK(Allreduce(engine, "x", &data));
    EXPECT_EQ(data[0], 3.0f);
  });
}

// Another set keeps its configured values.
TEST(Autotune, OnlyTheSetOfAllRanksTunes) {
  Cluster cluster(2, Wires::kShm, {{0, 1}}, TuningConfig(""));
  cluster.Run([](Engine& engine, int) {
    for (int step = 0; step < 200; ++step) {
      std::vector<float> data(10000, 1.0f);
      ASSERT_OK(Allreduce(engine, "x", &data, ReduceOp::kSum, 1));
    }
    EXPECT_EQ(engine.CountersNow()["autotune_samples"], uint64_t{0});
  });
}

}  // namespace
}  // namespace hvd::test
