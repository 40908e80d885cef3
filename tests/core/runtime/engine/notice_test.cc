// Notices (see negotiate::Request) among engines: in and out of schedules, over all transports.

#include <random>
#include <string>

#include "check.h"
#include "cluster.h"

namespace hvd::test {
namespace {

Status Tell(Engine& engine, const std::string& name, uint8_t bits) {
  Entry entry;
  entry.request.name = name;
  entry.request.notice = bits;
  return Run(engine, std::move(entry));
}

// Steps of three operations. Now and then some ranks tell something in place of the second one,
// before or after a schedule is learned: it changes nothing anywhere, and all hear of it.
TEST(Notice, AllHearOfItAndNothingIsChanged) {
  constexpr int kRanks = 3;
  for (const Wires wires : kAllWires) {
    Cluster cluster(kRanks, wires);
    cluster.Run([&](Engine& engine, int rank) {
      std::mt19937 random(7);  // the same on all ranks
      for (int step = 0; step < 60; ++step) {
        int told = 0;
        int mine = 0;
        for (int r = 0; r < kRanks && step % 12 == 11; ++r) {
          const int bits = random() % 2 == 0 ? 0 : 2 << random() % 7;
          told |= bits == 0 ? 1 : bits;
          if (r == rank) mine = bits;
        }
        const auto own = static_cast<float>(rank + step);
        std::vector<float> data(step % 2 == 0 ? 8 : 100'000, own);
        ASSERT_OK(Allreduce(engine, "before", &data));
        data.assign(data.size(), own);
        const Status status =
            mine == 0
                ? Allreduce(engine, "gradient" + std::to_string(step % 2), &data)
                : Tell(engine, "gradient" + std::to_string(step % 2), static_cast<uint8_t>(mine));
        const float sum = 3 + 3 * static_cast<float>(step);
        if (told <= 1) {
          ASSERT_OK(status);
          EXPECT_EQ(data.back(), sum);
        } else {
          EXPECT_TRUE(status.code() == Code::kNotice);
          EXPECT_EQ(status.message(), std::to_string(told));
          EXPECT_EQ(data.back(), own);
        }
        data.assign(data.size(), own);
        ASSERT_OK(Allreduce(engine, "after", &data));
        EXPECT_EQ(data.back(), sum);
      }
    });
  }
}

}  // namespace
}  // namespace hvd::test
