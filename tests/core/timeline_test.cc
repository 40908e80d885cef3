#include "trace/timeline.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "check.h"

namespace hvd {
namespace {

// What a timeline holds after `record` has run on it.
std::string Recorded(bool mark_cycles, void (*record)(Timeline&)) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("hvd_timeline_" + std::to_string(getpid()) + ".json");
  Timeline timeline(3);
  timeline.Begin("before the start", "NEGOTIATE_ALLREDUCE");
  EXPECT_TRUE(timeline.Start(path, mark_cycles).ok());
  EXPECT_FALSE(timeline.Start(path, mark_cycles).ok());
  record(timeline);
  EXPECT_TRUE(timeline.Stop().ok());
  timeline.End("after the end");
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  return text.str();
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Timeline, NamesEachRowOnceAndEscapes) {
  const std::string text = Recorded(false, [](Timeline& timeline) {
    for (int i = 0; i < 3; ++i) {
      timeline.Begin("a \"quoted\\\n name", "ALLREDUCE");
      timeline.End("a \"quoted\\\n name");
    }
    timeline.MarkCycle();
  });
  EXPECT_EQ(text.substr(0, 2), "[\n");
  EXPECT_EQ(text.substr(text.size() - 3), "\n]\n");
  EXPECT_EQ(Count(text, "thread_name"), 1);
  EXPECT_EQ(Count(text, R"("a \"quoted\\\u000a name")"), 1);
  EXPECT_EQ(Count(text, R"("ph":"B")"), 3);
  EXPECT_EQ(Count(text, R"("ph":"E")"), 3);
  EXPECT_EQ(Count(text, R"("pid":3)"), 7);
  EXPECT_EQ(Count(text, "CYCLE_START"), 0);
}

TEST(Timeline, MarksCyclesWhenAsked) {
  const std::string text = Recorded(true, [](Timeline& timeline) {
    timeline.MarkCycle();
    timeline.MarkCycle();
  });
  EXPECT_EQ(Count(text, "CYCLE_START"), 2);
}

TEST(Timeline, SaysWhyAFileCannotBeMade) {
  Timeline timeline(0);
  const Status status = timeline.Start("/nonexistent folder/timeline.json", false);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(status.message().find("/nonexistent folder/timeline.json") != std::string::npos);
}

}  // namespace
}  // namespace hvd
