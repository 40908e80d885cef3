// The executor against a backend that records what it is asked for, beside the host's.

#include "runtime/progress/executor.h"

#include <chrono>
#include <thread>

#include "backend/host/host_backend.h"
#include "base/clock.h"
#include "check.h"
#include "recording_backend.h"
#include "runtime/progress/waiting.h"

namespace hvd::test {
namespace {

using Calls = std::vector<std::string>;

constexpr int64_t kMilli = 1000;
constexpr Policy kPolicy{128 << 20, -1};
constexpr int32_t kGpu = 2;

// A rank alone in its set, whose host and whose GPU have a backend each.
class Lone {
 public:
  explicit Lone(bool with_host = true)
      : executor_(Members{0}, Position(0), Backends(with_host), waker_, &queue_, &counters_,
                  nullptr) {}

  const std::shared_ptr<Record>& record() const { return record_; }
  Executor& executor() { return executor_; }

  // An allreduce that halves `data`.
  HandlePtr Submit(const std::string& name, std::vector<float>* data, int32_t device = kHostDevice,
                   DeviceOrder order = {}) {
    Entry entry;
    entry.request.name = name;
    entry.request.prescale = 0.5;
    entry.request.device = device;
    entry.request.tensors.push_back({DataType::kFloat32, {static_cast<int64_t>(data->size())}});
    entry.buffers.push_back(
        TensorBuffer::InPlace(data->data(), static_cast<int64_t>(data->size() * sizeof(float))));
    entry.order = order;
    auto handle = std::make_shared<Handle>(std::move(entry));
    const Status queued = queue_.Push(handle);
    if (!queued.ok()) check::Fail(__FILE__, __LINE__, queued.message());
    return handle;
  }

  Status Decide(const std::vector<HandlePtr>& handles) {
    std::vector<Decided> decided;
    for (const HandlePtr& handle : handles) decided.push_back({handle});
    return executor_.Add(std::move(decided), kPolicy);
  }

  // One step after the other as long as they move.
  Status Advance() {
    for (bool moved = true; moved;) {
      moved = false;
      HVD_RETURN_IF_ERROR(executor_.Advance(&moved));
    }
    return Status::Ok();
  }

  // As the engine drives: asleep on the waker, until the deadline at most. Counts the sleeps.
  Status Drive(const HandlePtr& handle, int* sleeps) {
    for (;;) {
      HVD_RETURN_IF_ERROR(Advance());
      if (handle->done.load()) return Status::Ok();
      if (++*sleeps > 3) return Status::Internal("nothing wakes it");
      PollSet fds;
      fds.Add(waker_.fd());
      fds.Wait(Earlier(executor_.Deadline(), NowMicros() + 10000 * kMilli));
      waker_.Drain();
    }
  }

 private:
  std::vector<std::unique_ptr<Backend>> Backends(bool with_host) {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<RecordingBackend>(record_));
    if (with_host) backends.push_back(MakeTransportBackend(nullptr, 0, Members{0}, Position(0)));
    return backends;
  }

  const std::shared_ptr<Record> record_ = std::make_shared<Record>();
  Waker waker_;
  Queue queue_;
  Counters counters_;
  Executor executor_;
};

TEST(Executor, ChoosesTheBackendByDevice) {
  Lone rank;
  std::vector<float> host(4, 8.0f);
  std::vector<float> device(4, 8.0f);
  const HandlePtr on_host = rank.Submit("host", &host);
  ASSERT_OK(rank.Decide({on_host}));
  ASSERT_OK(rank.Advance());
  EXPECT_TRUE(on_host->done.load());
  EXPECT_EQ(host[3], 4.0f);
  EXPECT_TRUE(rank.record()->calls.empty());
  const HandlePtr on_gpu = rank.Submit("gpu", &device, kGpu);
  ASSERT_OK(rank.Decide({on_gpu}));
  ASSERT_OK(rank.Advance());
  EXPECT_TRUE(on_gpu->done.load());
  EXPECT_EQ(device[3], 8.0f);  // it only copies
  EXPECT_EQ(rank.record()->specs.size(), size_t{1});
  EXPECT_EQ(rank.record()->specs[0].device, kGpu);
}

struct PlayedEnd : DeviceEnd {
  Status HaveWait(int32_t /*device*/, void* /*stream*/) const override { return Status::Ok(); }
  bool HasCome() const override { return come.load(); }
  bool lost() const override { return false; }
  std::atomic<bool> come{false};
};

TEST(Executor, TheEndOnADeviceGoesIntoTheHandles) {
  Lone rank;
  const auto end = std::make_shared<PlayedEnd>();
  rank.record()->end = end;
  std::vector<float> a(4);
  std::vector<float> b(4);
  std::vector<float> host(4);
  const std::vector<HandlePtr> handles{rank.Submit("a", &a, kGpu), rank.Submit("b", &b, kGpu)};
  const HandlePtr on_host = rank.Submit("host", &host);
  ASSERT_OK(rank.Decide({handles[0], handles[1], on_host}));
  ASSERT_OK(rank.Advance());
  for (const HandlePtr& handle : handles) {
    EXPECT_TRUE(handle->done.load() && handle->end == end && !handle->IsOver());
    ASSERT_TRUE(handle->outputs.size() == 1);
    EXPECT_TRUE(handle->outputs[0].end == end && handle->outputs[0].data == nullptr);
    EXPECT_EQ(handle->outputs[0].device, kGpu);
  }
  EXPECT_TRUE(on_host->IsOver() && on_host->outputs.empty());
  end->come.store(true);
  EXPECT_TRUE(handles[0]->IsOver());
}

TEST(Executor, HandsOverStreamsAndEventsOfEachTensor) {
  Lone rank;
  int streams[2];
  int events[2];
  std::vector<float> a(4);
  std::vector<float> b(6);
  ASSERT_OK(rank.Decide({rank.Submit("a", &a, kGpu, {&streams[0], &events[0]}),
                         rank.Submit("b", &b, kGpu + 1, {&streams[1], &events[1]})}));
  ASSERT_OK(rank.Advance());
  ASSERT_EQ(rank.record()->specs.size(), size_t{1});  // they travel together
  const CollectiveSpec& spec = rank.record()->specs[0];
  ASSERT_EQ(spec.order.size(), size_t{2});
  for (int i : {0, 1}) {
    EXPECT_EQ(spec.order[i].stream, static_cast<void*>(&streams[i]));
    EXPECT_EQ(spec.order[i].ready_event, static_cast<void*>(&events[i]));
    EXPECT_EQ(spec.order[i].device, kGpu + i);  // other ranks need not know of two
  }
}

// The device in its request is a number of another rank's.
TEST(Executor, ARankThatHasJoinedTakesPartFromTheHost) {
  Lone rank;
  negotiate::Request request;
  request.device = kGpu;
  request.tensors.push_back({DataType::kFloat32, {4}});
  auto handle = std::make_shared<Handle>(Entry());
  ASSERT_OK(MakeNeutral(0, request, &handle->entry, &handle->kept));
  ASSERT_OK(rank.Decide({handle}));
  ASSERT_OK(rank.Advance());
  EXPECT_TRUE(handle->done.load());
  ASSERT_EQ(rank.record()->specs.size(), size_t{1});
  ASSERT_EQ(rank.record()->specs[0].order.size(), size_t{1});
  EXPECT_EQ(rank.record()->specs[0].order[0].device, kHostDevice);
}

TEST(Executor, ATensorOfTheHostAndOneOfAGpuDoNotTravelTogether) {
  Lone rank;
  std::vector<float> a(4, 8.0f);
  std::vector<float> b(4, 8.0f);
  ASSERT_OK(rank.Decide({rank.Submit("a", &a), rank.Submit("b", &b, kGpu)}));
  ASSERT_OK(rank.Advance());
  EXPECT_EQ(a[0], 4.0f);
  EXPECT_EQ(rank.record()->specs.size(), size_t{1});
}

TEST(Executor, SetsABackendUpOnceBeforeItsFirstCollective) {
  Lone rank;
  std::vector<float> data(4);
  rank.record()->may_set_up.store(false);
  const HandlePtr first = rank.Submit("first", &data, kGpu);
  ASSERT_OK(rank.Decide({first}));
  ASSERT_OK(rank.Advance());
  EXPECT_TRUE(rank.record()->calls == Calls{"set up"});
  EXPECT_FALSE(first->done.load());
  Lone other;  // is not held up
  std::vector<float> host(4, 8.0f);
  ASSERT_OK(other.Decide({other.Submit("x", &host)}));
  ASSERT_OK(other.Advance());
  EXPECT_EQ(host[0], 4.0f);
  rank.record()->may_set_up.store(true);
  ASSERT_OK(rank.Advance());
  EXPECT_TRUE(first->done.load());
  ASSERT_OK(rank.Decide({rank.Submit("second", &data, kGpu)}));
  ASSERT_OK(rank.Advance());
  const Calls expected{"set up",       "machine gone",    "start allreduce",
                       "machine gone", "start allreduce", "machine gone"};
  EXPECT_TRUE(rank.record()->calls == expected);
}

TEST(Executor, FailsWithWhatSettingUpFailedWith) {
  Lone rank;
  std::vector<float> data(4);
  rank.record()->set_up_status = Status::Aborted("no communicator");
  ASSERT_OK(rank.Decide({rank.Submit("x", &data, kGpu)}));
  EXPECT_EQ(rank.Advance().message(), "no communicator");
  EXPECT_TRUE(rank.record()->specs.empty());
}

TEST(Executor, AMachineThatIsBlockedIsWokenByItsBackend) {
  Lone rank;
  std::vector<float> data(4);
  rank.record()->may_run.store(false);
  const HandlePtr handle = rank.Submit("x", &data, kGpu);
  ASSERT_OK(rank.Decide({handle}));
  ASSERT_OK(rank.Advance());
  EXPECT_EQ(rank.executor().Deadline(), int64_t{-1});
  std::thread device([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    rank.record()->LetRun();
  });
  int sleeps = 0;
  const Status status = rank.Drive(handle, &sleeps);
  device.join();
  ASSERT_OK(status);
  EXPECT_TRUE(sleeps <= 1);  // none where the device was ready before this thread came to sleep
}

TEST(Executor, AMachineThatIsBlockedIsAdvancedAtItsDeadline) {
  Lone rank;
  std::vector<float> data(4);
  rank.record()->may_run.store(false);
  rank.record()->deadline_us = NowMicros() + 20 * kMilli;
  const HandlePtr handle = rank.Submit("x", &data, kGpu);
  ASSERT_OK(rank.Decide({handle}));
  ASSERT_OK(rank.Advance());
  EXPECT_EQ(rank.executor().Deadline(), rank.record()->deadline_us);
  rank.record()->may_run.store(true);  // and nobody rings
  int sleeps = 0;
  ASSERT_OK(rank.Drive(handle, &sleeps));
  EXPECT_EQ(rank.executor().Deadline(), int64_t{-1});
}

TEST(Executor, AbortsTheBackendBeforeItsMachineGoes) {
  Lone rank;
  std::vector<float> data(4, 8.0f);
  rank.record()->may_run.store(false);
  const HandlePtr handle = rank.Submit("x", &data, kGpu);
  const HandlePtr behind = rank.Submit("y", &data);
  ASSERT_OK(rank.Decide({handle, behind}));
  ASSERT_OK(rank.Advance());
  rank.record()->calls.clear();
  rank.executor().Abandon();
  EXPECT_TRUE((rank.record()->calls == Calls{"abort", "machine gone"}));
  rank.record()->may_run.store(true);
  ASSERT_OK(rank.Advance());
  EXPECT_FALSE(handle->done.load());
  EXPECT_FALSE(behind->done.load());
  EXPECT_EQ(data[0], 8.0f);
}

TEST(Executor, FailsWhereNoBackendServesTheDevice) {
  Lone rank(false);
  std::vector<float> data(4);
  EXPECT_TRUE(rank.Decide({rank.Submit("x", &data)}).code() == Code::kAborted);
}

}  // namespace
}  // namespace hvd::test
