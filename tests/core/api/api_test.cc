// The C table as native code of a framework uses it: one engine, of a job of one rank.

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "api/process.h"
#include "check.h"

namespace hvd::test {
namespace {

// What a callback has seen.
struct Seen {
  std::atomic<int> times{0};
  int32_t code = -1;
  std::string message;
  std::vector<int64_t> numbers;  // of the first output
  std::vector<int64_t> shape;
  void* share = nullptr;
  const int64_t* kept = nullptr;
  hvd_api* api = nullptr;

  void Await() const {
    for (int i = 0; i < 10000 && times == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

void Done(void* context, const hvd_result* result) {
  auto* seen = static_cast<Seen*>(context);
  seen->code = result->code;
  seen->message = result->message;
  if (result->output_count > 0) {
    const hvd_output& output = result->outputs[0];
    seen->shape.assign(output.shape, output.shape + output.dims);
    seen->kept = static_cast<const int64_t*>(output.data);
    const int64_t count = output.dims == 0 ? 1 : output.shape[0];
    seen->numbers.assign(seen->kept, seen->kept + count);
    if (seen->api != nullptr) seen->share = seen->api->keep(&output);
  }
  ++seen->times;
}

class Job {
 public:
  Job() {
    EngineOptions options;
    options.config.log_level = LogLevel::kError;
    status = api::StartEngine({0, 1, 0, 1, 0, 1}, std::move(options));
  }
  ~Job() { api::StopEngine(); }

  Status status;
};

hvd_operation Operation(OpKind kind, const char* name, const hvd_tensor* tensor) {
  hvd_operation operation{};
  operation.kind = static_cast<int32_t>(kind);
  operation.reduce_op = static_cast<int32_t>(ReduceOp::kSum);
  operation.prescale = operation.postscale = 1.0;
  operation.name = name;
  operation.tensors = tensor;
  operation.tensor_count = tensor == nullptr ? 0 : 1;
  return operation;
}

TEST(Api, ReducesAndAnswers) {
  hvd_api* api = api::AcquireTable();
  EXPECT_EQ(api->version, uint32_t{HVD_API_VERSION});
  hvd_topology topology{};
  EXPECT_EQ(api->topology(api, &topology), static_cast<int32_t>(Code::kNotInitialized));
  {
    const Job job;
    ASSERT_OK(job.status);
    EXPECT_EQ(api->topology(api, &topology), 0);
    EXPECT_EQ(topology.size, 1);
    int32_t size = 0;
    int32_t rank = -2;
    EXPECT_EQ(api->process_set(api, 0, &size, &rank), 0);
    EXPECT_EQ(size, 1);
    EXPECT_EQ(rank, 0);
    EXPECT_EQ(api->process_set(api, 7, &size, &rank), static_cast<int32_t>(Code::kInvalidArgument));

    std::array<int64_t, 2> data{3, 4};
    const int64_t shape = 2;
    const hvd_tensor tensor{
        data.data(), 16, data.data(), 16, static_cast<int32_t>(DataType::kInt64), 1, &shape};
    hvd_operation operation = Operation(OpKind::kAllreduce, "twice", &tensor);
    operation.prescale = 2.0;
    Seen seen;
    api->submit(api, &operation, &Done, &seen);
    seen.Await();
    EXPECT_EQ(seen.code, 0);
    EXPECT_EQ(data[0], 6);
    EXPECT_EQ(data[1], 8);
  }
  EXPECT_EQ(api->topology(api, &topology), static_cast<int32_t>(Code::kNotInitialized));
  api->release(api);
}

TEST(Api, SharesMemoryOfTheCoreBeyondTheEngine) {
  hvd_api* api = api::AcquireTable();
  Seen seen;
  seen.api = api;
  {
    const Job job;
    ASSERT_OK(job.status);
    const std::array<int64_t, 3> data{5, 6, 7};
    const int64_t shape = 3;
    const hvd_tensor tensor{data.data(), 24,    nullptr, 0, static_cast<int32_t>(DataType::kInt64),
                            1,           &shape};
    const hvd_operation operation = Operation(OpKind::kAllgather, nullptr, &tensor);
    api->submit(api, &operation, &Done, &seen);
    seen.Await();
  }
  EXPECT_TRUE(seen.numbers == (std::vector<int64_t>{5, 6, 7}));
  EXPECT_TRUE(seen.shape == (std::vector<int64_t>{3}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(seen.kept) % 64, uintptr_t{0});
  EXPECT_EQ(seen.kept[2], int64_t{7});  // the engine is gone
  api->drop(seen.share);
  api->release(api);
}

TEST(Api, CallsBackOnceWhateverIsWrong) {
  hvd_api* api = api::AcquireTable();
  const int64_t shape = 1;
  float number = 1;
  const hvd_tensor tensor{&number, 4,     &number, 4, static_cast<int32_t>(DataType::kFloat32),
                          1,       &shape};
  const hvd_tensor strange{&number, 4, &number, 4, 99, 1, &shape};
  const hvd_tensor longer{&number, 4,     &number, 8, static_cast<int32_t>(DataType::kFloat32),
                          1,       &shape};
  // Negative numbers that an empty dimension hides, and of dimensions.
  const std::array<int64_t, 2> less_than_nothing{0, -1};
  const hvd_tensor negative{&number,
                            0,
                            &number,
                            0,
                            static_cast<int32_t>(DataType::kFloat32),
                            2,
                            less_than_nothing.data()};
  const hvd_tensor flat{&number, 4,     &number, 4, static_cast<int32_t>(DataType::kFloat32),
                        -1,      &shape};
  const auto code_of = [&](const hvd_operation& operation) {
    Seen seen;
    api->submit(api, &operation, &Done, &seen);
    seen.Await();
    EXPECT_EQ(seen.times.load(), 1);
    EXPECT_TRUE(!seen.message.empty());
    return static_cast<Code>(seen.code);
  };
  EXPECT_TRUE(code_of(Operation(OpKind::kAllreduce, "early", &tensor)) == Code::kNotInitialized);
  const Job job;
  ASSERT_OK(job.status);
  EXPECT_TRUE(code_of(Operation(OpKind::kAllreduce, "type", &strange)) == Code::kInvalidArgument);
  EXPECT_TRUE(code_of(Operation(OpKind::kAllreduce, "length", &longer)) == Code::kInvalidArgument);
  EXPECT_TRUE(code_of(Operation(OpKind::kAllreduce, "shape", &negative)) == Code::kInvalidArgument);
  EXPECT_TRUE(code_of(Operation(OpKind::kAllreduce, "dims", &flat)) == Code::kInvalidArgument);
  EXPECT_TRUE(code_of(Operation(static_cast<OpKind>(77), "kind", &tensor)) ==
              Code::kInvalidArgument);
  hvd_operation elsewhere = Operation(OpKind::kAllreduce, "set", &tensor);
  elsewhere.process_set = 5;
  EXPECT_TRUE(code_of(elsewhere) == Code::kInvalidArgument);
  api->release(api);
}

TEST(Api, JoinsAllProcessSets) {
  hvd_api* api = api::AcquireTable();
  const Job job;
  ASSERT_OK(job.status);
  uint32_t set = 0;
  ASSERT_OK(api::CurrentEngine()->AddProcessSet({0}, &set));
  EXPECT_TRUE(api::CurrentEngine()->ProcessSets() == (std::vector<uint32_t>{0, set}));
  const hvd_operation operation = Operation(OpKind::kJoin, nullptr, nullptr);
  Seen seen;
  api->submit(api, &operation, &Done, &seen);
  seen.Await();
  EXPECT_EQ(seen.code, 0);
  EXPECT_TRUE(seen.numbers == (std::vector<int64_t>{0}));
  api->release(api);
}

// They are torch.distributed's, beside which the program may use TensorFlow.
TEST(Api, DoesNotJoinSetsThatTheirMembersAloneHaveMade) {
  hvd_api* api = api::AcquireTable();
  const Job job;
  ASSERT_OK(job.status);
  uint32_t own = 0;
  ASSERT_OK(api::CurrentEngine()->AddOwnProcessSet({0}, 1'000'000, nullptr, &own));
  const auto responses = [] { return api::CurrentEngine()->CountersNow().at("responses"); };
  const uint64_t before = responses();
  const hvd_operation operation = Operation(OpKind::kJoin, nullptr, nullptr);
  Seen seen;
  api->submit(api, &operation, &Done, &seen);
  seen.Await();
  EXPECT_EQ(seen.code, 0);
  EXPECT_EQ(responses(), before + 1);
  api->release(api);
}

}  // namespace
}  // namespace hvd::test
