#include "runtime/tune/meter.h"

#include <cmath>
#include <vector>

#include "check.h"

namespace hvd {
namespace {

using negotiate::kNoId;

// A program on a clock of its own, which the meter listens to.
class Program {
 public:
  explicit Program(int64_t steps_per_sample) : meter_(steps_per_sample) {}

  AutotuneMeter& meter() { return meter_; }
  const std::vector<double>& scores() const { return scores_; }

  void Run(uint32_t id, int64_t bytes) {
    if (const auto score = meter_.Add(id, bytes, now_)) scores_.push_back(*score);
  }
  void Pause(int64_t micros) { now_ += micros; }

  // Ten gradients, the largest in the middle, with `pause` us of computing in front.
  void Step(int64_t pause) {
    Pause(pause);
    for (uint32_t id = 10; id < 20; ++id) {
      Pause(50);
      Run(id, id == 15 ? 9100 : 100);
    }
  }

 private:
  AutotuneMeter meter_;
  int64_t now_ = 1000000;
  std::vector<double> scores_;
};

bool Near(double a, double b) { return std::abs(a - b) < 1e-3 * b; }

TEST(AutotuneMeter, BytesPerMicrosecondOfAStep) {
  Program program(4);
  for (int step = 0; step < 20; ++step) program.Step(9500);
  ASSERT_TRUE(program.scores().size() >= 3);
  for (const double score : program.scores()) EXPECT_TRUE(Near(score, 1.0));
}

TEST(AutotuneMeter, ASampleHasItsStepsAndNotFewer) {
  Program program(10);
  // The first appearance of the anchor is none yet, and the first step from the second is dropped.
  for (int step = 0; step < 12; ++step) program.Step(9500);
  EXPECT_EQ(program.scores().size(), size_t{0});
  program.Step(9500);
  EXPECT_EQ(program.scores().size(), size_t{1});
}

// Steps of 600 us: too short for the clock to tell ten of them from twelve.
TEST(AutotuneMeter, ShortStepsAreGathered) {
  Program program(2);
  for (int step = 0; step < 30; ++step) program.Step(100);
  EXPECT_EQ(program.scores().size(), size_t{0});
  for (int step = 0; step < 10; ++step) program.Step(100);
  ASSERT_EQ(program.scores().size(), size_t{1});
  EXPECT_TRUE(Near(program.scores()[0], 10000.0 / 600));
}

TEST(AutotuneMeter, PausesAndMetricsChangeNothing) {
  Program program(10);
  for (int step = 0; step < 60; ++step) {
    if (step % 7 == 0) program.Pause(3000000);  // a checkpoint
    for (int metric = 0; metric < step % 3; ++metric) program.Run(3, 8);
    if (step % 9 == 0) program.Run(4, 5000);  // now and then much more than a step has
    program.Step(9500);
  }
  ASSERT_TRUE(program.scores().size() >= 4);
  for (const double score : program.scores()) EXPECT_TRUE(std::abs(score - 1.0) < 0.02);
}

// What is large but comes only once is no anchor.
TEST(AutotuneMeter, BroadcastsAtTheBeginningAreForgotten) {
  Program program(4);
  for (uint32_t id = 0; id < 10; ++id) program.Run(id, 1000000);
  for (int step = 0; step < 12; ++step) program.Step(9500);
  ASSERT_TRUE(!program.scores().empty());
  EXPECT_TRUE(Near(program.scores().back(), 1.0));
}

// A second phase of the program with other operations: the old anchor is given up.
TEST(AutotuneMeter, FollowsTheProgram) {
  Program program(4);
  for (int step = 0; step < 12; ++step) program.Step(9500);
  const size_t before = program.scores().size();
  for (int step = 0; step < 300; ++step) {
    program.Pause(10000);
    program.Run(30, 500);
  }
  ASSERT_TRUE(program.scores().size() > before + 2);
  EXPECT_TRUE(Near(program.scores().back(), 0.05));
}

TEST(AutotuneMeter, UnnamedOperationsAreMeasuredByTime) {
  Program program(5);
  for (int operation = 0; operation < 2000; ++operation) {
    program.Pause(1000);
    program.Run(kNoId, 4000);
  }
  ASSERT_TRUE(program.scores().size() >= 10);
  for (const double score : program.scores()) EXPECT_TRUE(Near(score, 4.0));
}

TEST(AutotuneMeter, ARestartDropsWhatWasMeasuredAndOneStep) {
  Program program(4);
  for (int step = 0; step < 6; ++step) program.Step(9500);
  EXPECT_EQ(program.scores().size(), size_t{0});
  program.meter().Restart();
  for (int step = 0; step < 5; ++step) program.Step(19500);
  EXPECT_EQ(program.scores().size(), size_t{0});
  program.Step(19500);
  ASSERT_EQ(program.scores().size(), size_t{1});
  EXPECT_TRUE(Near(program.scores()[0], 0.5));
}

TEST(AutotuneMeter, WhatHasNoBytesIsNotMeasured) {
  Program program(1);
  for (int operation = 0; operation < 100; ++operation) {
    program.Pause(100000);
    program.Run(kNoId, 0);
  }
  EXPECT_EQ(program.scores().size(), size_t{0});
}

}  // namespace
}  // namespace hvd
