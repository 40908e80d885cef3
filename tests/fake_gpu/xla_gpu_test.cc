// Collectives of programs that XLA runs on a GPU: calls as XLA makes them, the stand-in for the
// driver, and the core with a job of one rank.

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/process.h"
#include "check.h"
#include "device.h"
#include "xla_ops/gpu.h"
#include "xla_ops/xla_ffi.h"

namespace hvd::xla {

struct Error {
  int code;
  std::string text;
};

}  // namespace hvd::xla

namespace fake_gpu::test {
namespace {

using hvd::OpKind;
using namespace hvd::xla;

class Job {
 public:
  Job() {
    hvd::EngineOptions options;
    options.config.log_level = hvd::LogLevel::kError;
    const hvd::Status status = hvd::api::StartEngine({0, 1, 0, 1, 0, 1}, std::move(options));
    EXPECT_TRUE(status.ok());
    core = hvd::api::AcquireTable();
  }
  ~Job() {
    hvd::api::StopEngine();
    core->release(core);
  }
  hvd_api* core;
};

Error* MakeIt(ErrorArguments* arguments) { return new Error{arguments->code, arguments->message}; }
Error* TellStream(StreamArguments* arguments) {
  arguments->stream = arguments->context;
  return nullptr;
}

// One call of a program, whose stream stands for its context.
class Call {
 public:
  Call(OpKind kind, void* stream) {
    api_.bytes = sizeof(Api);
    api_.version = {sizeof(Version), nullptr, 0, 1};
    api_.create_error = &MakeIt;
    api_.stream = &TellStream;
    Number("kind", static_cast<int64_t>(kind));
    Number("reduce_op", static_cast<int64_t>(hvd::ReduceOp::kSum));
    Factor("prescale", 1);
    Factor("postscale", 1);
    frame_.api = &api_;
    frame_.context = stream;
    frame_.stage = kExecute;
  }

  void Number(const char* name, int64_t value) { Add(name, kS64, &numbers_.emplace_back(value)); }
  void Factor(const char* name, double value) { Add(name, kF64, &factors_.emplace_back(value)); }
  void Give(int type, void* data, std::vector<int64_t> shape) {
    Add(&arguments_, type, data, std::move(shape));
  }
  void Take(int type, void* data, std::vector<int64_t> shape) {
    Add(&results_, type, data, std::move(shape));
  }

  std::unique_ptr<Error> Run(hvd_api* core) {
    Fill(&frame_.arguments, &arguments_);
    Fill(&frame_.results, &results_);
    frame_.attributes = {sizeof(Attributes), nullptr,       static_cast<int64_t>(types_.size()),
                         types_.data(),      names_.data(), values_.data()};
    return std::unique_ptr<Error>(RunOnGpu(core, &frame_));
  }

 private:
  struct Listed {
    std::vector<void*> buffers;
    std::vector<int> kinds;
  };

  void Add(const char* name, int type, void* value) {
    spans_.push_back({name, std::strlen(name)});
    scalars_.push_back({type, value});
    types_.push_back(kScalar);
    names_.push_back(&spans_.back());
    values_.push_back(&scalars_.back());
  }
  void Add(Listed* listed, int type, void* data, std::vector<int64_t> shape) {
    shapes_.push_back(std::move(shape));
    buffers_.push_back({sizeof(hvd::xla::Buffer), nullptr, type, data,
                        static_cast<int64_t>(shapes_.back().size()), shapes_.back().data()});
    listed->buffers.push_back(&buffers_.back());
    listed->kinds.push_back(1);
  }
  static void Fill(Buffers* buffers, Listed* listed) {
    *buffers = {sizeof(Buffers), nullptr, static_cast<int64_t>(listed->buffers.size()),
                listed->kinds.data(), listed->buffers.data()};
  }

  Api api_{};
  Frame frame_{};
  std::deque<int64_t> numbers_;
  std::deque<double> factors_;
  std::deque<Span> spans_;
  std::deque<Scalar> scalars_;
  std::deque<std::vector<int64_t>> shapes_;
  std::deque<hvd::xla::Buffer> buffers_;
  std::vector<int> types_;
  std::vector<Span*> names_;
  std::vector<void*> values_;
  Listed arguments_;
  Listed results_;
};

using Floats = std::vector<float>;

TEST(XlaOnGpu, ReducesWhatItsStreamHasComputed) {
  const Environment environment("FAKE_GPU_DELAY_US", "2000");
  {
    const Device device;
    const Job job;
    const TestStream stream;
    const test::Buffer<unsigned char> bytes(3);
    const test::Buffer<float> floats(Floats{1, 2});
    const test::Buffer<float> sum(2);
    const test::Buffer<unsigned char> other(3);
    cuMemsetD8Async(bytes.address(), 7, 3, stream);  // late: the stream sleeps before
    Call call(OpKind::kAllreduce, stream);
    call.Factor("prescale", 3);
    call.Give(kToken, nullptr, {});
    call.Give(kF32, floats.data(), {2});
    call.Give(kU8, bytes.data(), {3, 1});
    call.Give(kF32, nullptr, {0});
    call.Take(kToken, nullptr, {});
    call.Take(kF32, sum.data(), {2});
    call.Take(kU8, other.data(), {3, 1});
    call.Take(kF32, nullptr, {0});
    EXPECT_TRUE(call.Run(job.core) == nullptr);
    EXPECT_TRUE(sum.Read(stream) == (Floats{3, 6}));
    EXPECT_TRUE(other.Read(stream) == (std::vector<unsigned char>{21, 21, 21}));
  }
  EXPECT_EQ(Leaks(), "");
}

TEST(XlaOnGpu, GathersAndKeepsOrder) {
  const Environment environment;
  const Device device;
  const Job job;
  const TestStream stream;
  const test::Buffer<float> given(Floats{1, 2, 3, 4});
  const test::Buffer<float> made(4);
  const test::Buffer<int32_t> order(std::vector<int32_t>{5});
  const test::Buffer<int32_t> next(std::vector<int32_t>{5});
  Call call(OpKind::kAllgather, stream);
  call.Number("ordered", 1);
  call.Give(kS32, order.data(), {});
  call.Give(kF32, given.data(), {2, 2});
  call.Take(kS32, next.data(), {});
  call.Take(kF32, made.data(), {2, 2});
  EXPECT_TRUE(call.Run(job.core) == nullptr);
  EXPECT_TRUE(made.Read(stream) == (Floats{1, 2, 3, 4}));
  EXPECT_TRUE(next.Read(stream) == std::vector<int32_t>{0});
}

TEST(XlaOnGpu, AnErrorOfTheCoreIsThatOfTheProgram) {
  const Environment environment;
  const Device device;
  const Job job;
  const TestStream stream;
  const test::Buffer<float> given(Floats{1, 2});
  const test::Buffer<float> made(Floats{8, 9});
  Call call(OpKind::kBroadcast, stream);
  call.Number("root", 5);
  call.Give(kF32, given.data(), {2});
  call.Take(kF32, made.data(), {2});
  const std::unique_ptr<Error> error = call.Run(job.core);
  ASSERT_TRUE(error != nullptr);
  EXPECT_EQ(error->code, int{kFailedPrecondition});
  EXPECT_TRUE(error->text.find("Root rank 5") != std::string::npos);
  EXPECT_TRUE(made.Read(stream) == (Floats{8, 9}));
}

TEST(XlaOnGpu, AGpuThatCopiesNothingIsAnError) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  const Device device;
  const Job job;
  const TestStream stream;
  const test::Buffer<float> given(Floats{1, 2});
  Floats elsewhere{8, 9};
  for (const bool reads : {true, false}) {
    Call call(OpKind::kAllreduce, stream);
    call.Give(kF32, reads ? elsewhere.data() : given.data(), {2});
    call.Take(kF32, reads ? given.data() : elsewhere.data(), {2});
    const std::unique_ptr<Error> error = call.Run(job.core);
    ASSERT_TRUE(error != nullptr);
    EXPECT_EQ(error->code, int{kInternal});
    EXPECT_TRUE(error->text.find("the GPU copies nothing") != std::string::npos);
  }
  EXPECT_TRUE(elsewhere == (Floats{8, 9}));
}

}  // namespace
}  // namespace fake_gpu::test
