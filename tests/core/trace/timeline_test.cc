#include "trace/timeline.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <regex>
#include <sstream>
#include <string_view>

#include "base/clock.h"
#include "check.h"
#include "json_check.h"

namespace {

// How many allocations the timeline's thread still gets; negative: any number.
std::atomic<int> writer_allocations{-1};
std::atomic<int> refused_allocations{0};

bool OnWriterThread() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::string_view(name) == "hvd-timeline";
}

void* Allocate(size_t bytes) {
  const bool limited = writer_allocations.load() >= 0 && OnWriterThread();
  if (limited && writer_allocations.load() == 0) {
    refused_allocations.fetch_add(1);
    throw std::bad_alloc();
  }
  if (limited) writer_allocations.fetch_sub(1);
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hvd {
namespace {

const std::string& TestPath() {
  static const std::string path = std::filesystem::temp_directory_path() /
                                  ("hvd_timeline_" + std::to_string(getpid()) + ".json");
  return path;
}

std::string TakeFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  return text.str();
}

// What a timeline holds after `record` has run on it.
std::string Recorded(bool mark_cycles, void (*record)(Timeline&)) {
  Timeline timeline(0);
  timeline.Begin(1, 0, {OpKind::kAllreduce, "before the start"});
  EXPECT_TRUE(timeline.Start(TestPath(), mark_cycles).ok());
  record(timeline);
  EXPECT_TRUE(timeline.Stop().ok());
  timeline.End(1);
  std::string text = TakeFile(TestPath());
  EXPECT_TRUE(check::JsonCheck(text).Whole());
  return text;
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Per row, its slices in short: "(NEGOTIATE_ALLREDUCE)(ALLREDUCE)". Rows go by their names.
std::map<std::string, std::string> Slices(const std::string& text) {
  std::map<std::string, std::string> rows;
  std::map<std::string, std::string> name_of;
  std::istringstream lines(text);
  const std::regex row_name(R"re("tid":(\d+),"name":"thread_name","args":\{"name":"(.*)"\}\})re");
  const std::regex slice(R"re("ph":"([BE])".*"tid":(\d+)(?:,"name":"([A-Z_]+)")?)re");
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, row_name)) name_of[match[1]] = match[2];
    if (std::regex_search(line, match, slice)) {
      rows[name_of[match[2]]] += match[1] == "B" ? "(" + match[3].str() : ")";
    }
  }
  return rows;
}

TEST(Timeline, ShowsThePhasesOfEachTensorInItsRow) {
  const std::string text = Recorded(false, [](Timeline& timeline) {
    for (uint64_t i = 1; i <= 2; ++i) {
      timeline.Begin(2 * i, 0, {OpKind::kAllreduce, "a \"quoted\" name"});
      timeline.Begin(2 * i + 1, 0, {OpKind::kBarrier, "b"});
      timeline.Phase(2 * i, kQueuePhase);
      timeline.Phase(2 * i, "ALLREDUCE");
      timeline.End(2 * i + 1);
      timeline.End(2 * i);
    }
    timeline.MarkCycle();
  });
  const auto slices = Slices(text);
  EXPECT_EQ(slices.size(), 2u);
  const std::string once = "(NEGOTIATE_ALLREDUCE)(QUEUE)(ALLREDUCE)";
  EXPECT_EQ(slices.at(R"(allreduce.a \"quoted\" name)"), once + once);
  EXPECT_EQ(slices.at("barrier.b"), "(NEGOTIATE_BARRIER)(NEGOTIATE_BARRIER)");
  EXPECT_EQ(Count(text, "CYCLE_START"), 0);
  EXPECT_EQ(Count(text, "before the start"), 0);
}

TEST(Timeline, RowsAreOfAProcessSet) {
  const auto slices = Slices(Recorded(false, [](Timeline& timeline) {
    timeline.Begin(1, 0, {OpKind::kAllreduce, "x"});
    timeline.Begin(2, 3, {OpKind::kAllgather, "x"});
    timeline.End(1);
    timeline.End(2);
  }));
  EXPECT_EQ(slices.at("allreduce.x"), "(NEGOTIATE_ALLREDUCE)");
  EXPECT_EQ(slices.at("allgather.x [process set 3]"), "(NEGOTIATE_ALLGATHER)");
}

TEST(Timeline, ARowIsOfOneKindOfOperation) {
  const auto slices = Slices(Recorded(false, [](Timeline& timeline) {
    timeline.Begin(1, 0, {OpKind::kAllreduce, "x"});
    timeline.Begin(2, 0, {OpKind::kAllgather, "x"});
    timeline.Ready(0, OpKind::kAllgather, "x", GlobalRank(3));
  }));
  EXPECT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices.at("allreduce.x"), "(NEGOTIATE_ALLREDUCE)");
  EXPECT_EQ(slices.at("allgather.x"), "(NEGOTIATE_ALLGATHER)");
}

TEST(Timeline, SlicesTellBytesTypeAndShape) {
  const std::string text = Recorded(false, [](Timeline& timeline) {
    const Shape shape = {2, 0, 7};
    const Shape scalar;
    const Shape deep(9, 1);
    timeline.Begin(1, 0, {OpKind::kAllgather, "one", 1, DataType::kFloat16, 0, &shape});
    timeline.Begin(2, 0, {OpKind::kAllreduce, "scalar", 1, DataType::kInt64, 8, &scalar});
    timeline.Begin(3, 0, {OpKind::kAllreduce, "deep", 1, DataType::kBool, 1, &deep});
    timeline.Begin(
        4, 0, {OpKind::kAllreduce, "group", 161, DataType::kFloat32, int64_t{5} << 32, nullptr});
    timeline.Begin(5, 0, {OpKind::kBarrier, "none", 0, DataType::kUint8, 0, nullptr});
    timeline.Phase(1, kQueuePhase);
    timeline.Phase(1, "ALLGATHER");
  });
  EXPECT_EQ(Count(text, R"({"bytes":0,"dtype":"float16","shape":[2,0,7]})"),
            2);  // not while it only waits
  EXPECT_EQ(Count(text, R"({"bytes":8,"dtype":"int64","shape":[]})"), 1);
  EXPECT_EQ(Count(text, R"({"bytes":1,"dtype":"bool","tensors":1})"), 1);
  EXPECT_EQ(Count(text, R"({"bytes":21474836480,"dtype":"float32","tensors":161})"), 1);
  EXPECT_EQ(Count(text, R"({"bytes":0})"), 1);
}

TEST(Timeline, UnnamedOperationsShareRowsOneAtATime) {
  const auto slices = Slices(Recorded(false, [](Timeline& timeline) {
    timeline.Begin(1, 0, {OpKind::kAllreduce, ""});
    timeline.Begin(2, 0, {OpKind::kBroadcast, ""});
    timeline.End(1);
    timeline.Begin(3, 0, {OpKind::kAllgather, ""});
    timeline.End(3);
    timeline.End(2);
  }));
  EXPECT_EQ(slices.at("unnamed"), "(NEGOTIATE_ALLREDUCE)(NEGOTIATE_ALLGATHER)");
  EXPECT_EQ(slices.at("unnamed 2"), "(NEGOTIATE_BROADCAST)");
}

// Those of one direction and peer that are in flight together have a row each.
TEST(Timeline, MessagesHaveRowsByPeerAndDirection) {
  const std::string text = Recorded(false, [](Timeline& timeline) {
    const Shape shape{2, 3};
    const MessageInfo sent{true, GlobalRank(1), 7, DataType::kFloat32, 24, &shape};
    timeline.BeginMessage(10, 0, sent);
    timeline.BeginMessage(11, 0, sent);
    timeline.Phase(11, MessagePhase(true));
    timeline.End(11);
    timeline.End(10);
    timeline.BeginMessage(12, 0, sent);
    timeline.End(12);
    timeline.BeginMessage(13, 3, {false, GlobalRank(), 0, DataType::kUint8, 5, nullptr});
    timeline.Phase(13, MessagePhase(false));
    timeline.End(13);
  });
  EXPECT_EQ(Count(text, "\"send to rank 1\""), 1);
  EXPECT_EQ(Count(text, "\"send to rank 1 2\""), 1);
  EXPECT_EQ(Count(text, "\"send to rank 1 3\""), 0);
  EXPECT_EQ(Count(text, "\"recv from any rank [process set 3]\""), 1);
  EXPECT_EQ(Count(text, "\"WAIT_SEND\""), 3);
  EXPECT_EQ(Count(text, "\"SEND\""), 1);
  EXPECT_EQ(Count(text, "\"RECV\""), 1);
  EXPECT_EQ(Count(text, "{\"bytes\":24,\"dtype\":\"float32\",\"shape\":[2,3],\"tag\":7}"), 4);
}

TEST(Timeline, WhatIsUnderWayEndsWithIt) {
  const auto slices = Slices(Recorded(false, [](Timeline& timeline) {
    timeline.Phase(9, "ALLREDUCE");  // began before the timeline did
    timeline.End(9);
    timeline.Begin(1, 0, {OpKind::kAllreduce, "x"});
    timeline.Begin(2, 0, {OpKind::kAllreduce, "x"});  // the end of 1 was lost
    timeline.Phase(1, "ALLREDUCE");
    timeline.Phase(2, "ALLREDUCE");
  }));
  EXPECT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices.at("allreduce.x"), "(NEGOTIATE_ALLREDUCE)(NEGOTIATE_ALLREDUCE)(ALLREDUCE)");
}

TEST(Timeline, MarksCyclesAndReadinessWhenAsked) {
  const std::string text = Recorded(true, [](Timeline& timeline) {
    timeline.MarkCycle();
    timeline.Ready(0, OpKind::kAllreduce, "x", GlobalRank(11));
    timeline.Ready(0, OpKind::kAllreduce, "", GlobalRank(12));
    timeline.MarkCycle();
  });
  EXPECT_EQ(Count(text, "CYCLE_START"), 2);
  EXPECT_EQ(Count(text, R"("s":"t","name":"rank 11 ready")"), 1);
  EXPECT_EQ(Count(text, "rank 12"), 0);
}

TEST(TraceWriter, EndlessNewNamesShareRows) {
  constexpr int kNames = 40'000;
  TraceWriter writer(0);
  ASSERT_OK(writer.Open(TestPath()));
  for (int i = 1; i <= kNames; ++i) {
    const auto operation = static_cast<uint64_t>(i);
    writer.Write({i, operation, "BARRIER", 0, 0, 0, Record::kBegin}, {},
                 "name." + std::to_string(i));
    writer.Write({i, operation, nullptr, 0, 0, 0, Record::kEnd}, {}, {});
  }
  writer.Close(kNames);
  EXPECT_EQ(writer.lost(), 0u);
  const std::string text = TakeFile(TestPath());
  EXPECT_TRUE(check::JsonCheck(text).Whole());
  constexpr int kMostRows = static_cast<int>(TraceWriter::kMostRows);
  EXPECT_EQ(Count(text, "thread_name"), kMostRows + 2);  // the cycles and the others
  EXPECT_EQ(Count(text, R"("tensor":"name.)"), kNames - kMostRows);
  EXPECT_EQ(Count(text, R"("ph":"E")"), kNames);
}

TEST(TraceWriter, FollowsABoundedNumberOfOperationsAtATime) {
  constexpr int kMost = static_cast<int>(TraceWriter::kMostOpen);
  TraceWriter writer(0);
  ASSERT_OK(writer.Open(TestPath()));
  for (int i = 1; i <= kMost + 5; ++i) {
    writer.Write({i, static_cast<uint64_t>(i), "BARRIER", 0, 0, 0, Record::kBegin}, {}, {});
  }
  EXPECT_EQ(writer.lost(), 5u);
  writer.Close(kMost + 6);
  const std::string text = TakeFile(TestPath());
  EXPECT_EQ(Count(text, R"("ph":"B")"), kMost);
  EXPECT_EQ(Count(text, R"("ph":"E")"), kMost);
  EXPECT_EQ(Count(text, "LOST_EVENTS"), 5);
}

// Nothing waits for the disk: what does not fit is dropped, the file says so, and rows stay in
// order.
TEST(Timeline, DropsAndCountsWhatComesTooFast) {
  const std::string text = Recorded(false, [](Timeline& timeline) {
    const std::string name(200, 'n');
    for (uint64_t i = 1; i <= 400'000; ++i) {
      timeline.Begin(i, 0, {OpKind::kAllreduce, name});
      timeline.Phase(i, "ALLREDUCE");
      timeline.End(i);
    }
  });
  EXPECT_TRUE(Count(text, "LOST_EVENTS") > 0);
  EXPECT_EQ(Count(text, "\"ph\":\"B\""), Count(text, "\"ph\":\"E\""));
}

TEST(Timeline, TheFirstOfTwoGoesOn) {
  const std::string second = TestPath() + ".second";
  Timeline timeline(0);
  ASSERT_OK(timeline.Start(TestPath(), false));
  ASSERT_OK(timeline.Start(second, false));
  EXPECT_FALSE(std::filesystem::exists(second));
  ASSERT_OK(timeline.Stop());
  ASSERT_OK(timeline.Stop());
  ASSERT_OK(timeline.Start(second, false));
  timeline.Begin(1, 0, {OpKind::kAllreduce, "x"});
  ASSERT_OK(timeline.Stop());
  EXPECT_EQ(Slices(TakeFile(TestPath())).size(), 0u);
  EXPECT_EQ(Slices(TakeFile(second)).size(), 1u);
}

TEST(Timeline, PathsSayWhichRanksWrite) {
  EXPECT_EQ(Timeline::FileOf("t.json", 0), "t.json");
  EXPECT_EQ(Timeline::FileOf("t.json", 1), "");
  EXPECT_EQ(Timeline::FileOf("r{rank}/t.{rank}.json", 12), "r12/t.12.json");
  EXPECT_TRUE(Timeline::Wanted("t.json", 0) && Timeline::Wanted("t.{rank}", 5));
  EXPECT_TRUE(Timeline::Wanted("DYNAMIC", 5) && Timeline::IsDynamic("dynamic"));
  EXPECT_FALSE(Timeline::Wanted("", 0) || Timeline::Wanted("t.json", 1));
  Timeline other(1);
  ASSERT_OK(other.Start("/nonexistent folder/t.json", false));
}

TEST(Timeline, SaysWhyAFileCannotBeMade) {
  Timeline timeline(0);
  const Status status = timeline.Start("/nonexistent folder/timeline.json", false);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(status.message().find("/nonexistent folder/timeline.json") != std::string::npos);
}

// Generous: the machine may be busy. benchmarks/timeline.py reads the line.
// Wherever its thread is when memory runs out: the program goes on, and what is in the file is
// whole.
TEST(Timeline, EndsWithoutMemoryAndTheJobGoesOn) {
  const int before = refused_allocations;
  for (int allocations = 0; allocations < 40; ++allocations) {
    {
      Timeline timeline(0);
      ASSERT_OK(timeline.Start(TestPath(), true));
      writer_allocations.store(allocations);
      for (uint64_t i = 1; i <= 20; ++i) {
        const std::string name =
            "a name too long to lie within a string object " + std::to_string(i);
        timeline.Begin(i, 0, {OpKind::kAllreduce, name});
        timeline.Phase(i, "ALLREDUCE");
        if (i % 2 == 0) timeline.End(i);
      }
      ASSERT_OK(timeline.Stop());
      writer_allocations.store(-1);
    }
    EXPECT_TRUE(check::JsonCheck(TakeFile(TestPath())).Whole());
  }
  EXPECT_TRUE(refused_allocations > before);
}

TEST(Timeline, RecordingIsCheap) {
  constexpr int kTensors = 161;
  std::vector<std::string> names;
  for (int t = 0; t < kTensors; ++t) names.push_back("layer4.2.conv3.weight." + std::to_string(t));
  const Shape shape = {512, 2048, 1, 1};
  Timeline timeline(0);
  ASSERT_OK(timeline.Start(TestPath(), true));
  double best = 1e9;
  for (uint64_t step = 0; step < 50; ++step) {
    const int64_t start = NowNanos();
    for (uint64_t t = 0; t < kTensors; ++t)
      timeline.Begin(step * kTensors + t + 1, 0,
                     {OpKind::kAllreduce, names[t], 1, DataType::kFloat32, 4 << 20, &shape});
    for (uint64_t t = 0; t < kTensors; ++t) timeline.Phase(step * kTensors + t + 1, kQueuePhase);
    for (uint64_t t = 0; t < kTensors; ++t) timeline.Phase(step * kTensors + t + 1, "ALLREDUCE");
    for (uint64_t t = 0; t < kTensors; ++t) timeline.End(step * kTensors + t + 1);
    best = std::min(best, static_cast<double>(NowNanos() - start) / (4 * kTensors));
    usleep(5000);
  }
  ASSERT_OK(timeline.Stop());
  std::filesystem::remove(TestPath());
  std::printf("recording: %.0f ns per event\n", best);
  EXPECT_TRUE(best < 3000);
}

}  // namespace
}  // namespace hvd
