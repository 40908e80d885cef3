// The fake driver: what streams, events and memory promise, and what it catches.

#include <thread>

#include "device.h"

namespace fake_gpu::test {
namespace {

using Bytes = std::vector<unsigned char>;

TEST(Context, IsNeededAndBelongsToItsThread) {
  const Environment environment;
  void* stream = nullptr;
  CudaAddress address = 0;
  EXPECT_EQ(cuStreamCreateWithPriority(&stream, 1, 0), kCudaInvalidContext);
  EXPECT_EQ(cuMemAlloc_v2(&address, 16), kCudaInvalidContext);
  const Device device;
  std::thread([&] {
    EXPECT_EQ(cuStreamCreateWithPriority(&stream, 1, 0), kCudaInvalidContext);
  }).join();
  const TestStream now;
}

TEST(Context, OfAnotherDeviceIsRefused) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  const Device zero(0);
  const TestStream stream;
  const TestEvent event;
  const Buffer<char> buffer(8);
  const Device one(1);
  EXPECT_EQ(cuEventRecord(event, stream), kCudaInvalidHandle);
  EXPECT_EQ(cuMemFreeAsync(buffer.address(), nullptr), kCudaInvalidValue);
  EXPECT_TRUE(HasCalled("is memory of device 0"));
  EXPECT_EQ(cuEventQuery(event), kCudaOk);
}

TEST(Devices, AreAsManyAsTheEnvironmentSays) {
  const Environment environment("FAKE_GPU_DEVICES", "3");
  cuInit(0);
  int count = 0;
  int device = -1;
  EXPECT_EQ(cuDeviceGetCount(&count), 0);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(cuDeviceGet(&device, 2), 0);
  EXPECT_EQ(cuDeviceGet(&device, 3), kCudaInvalidDevice);
}

TEST(Devices, FailToStart) {
  const Environment environment("FAKE_CUDA_INIT_FAILS", "1");
  EXPECT_EQ(cuInit(0), kCudaNoDevice);
}

TEST(Stream, IsAsynchronousAndKeepsOrder) {
  const Environment environment;
  const Device device;
  const Buffer<unsigned char> buffer(4);
  const TestStream stream;
  Gate gate(stream);
  EXPECT_EQ(cuMemsetD8Async(buffer.address(), 1, 4, stream), 0);
  EXPECT_EQ(cuMemsetD8Async(buffer.address(), 2, 2, stream), 0);
  EXPECT_EQ(cuStreamQuery(stream), kCudaNotReady);
  gate.Open();
  EXPECT_TRUE(buffer.Read(stream) == (Bytes{2, 2, 1, 1}));
  EXPECT_EQ(cuStreamQuery(stream), kCudaOk);
}

TEST(Stream, FinishesItsWorkAfterItIsDestroyed) {
  const Environment environment;
  const Device device;
  const Buffer<unsigned char> buffer(1);
  const TestEvent done;
  {
    const TestStream stream;
    cuMemsetD8Async(buffer.address(), 7, 1, stream);
    cuEventRecord(done, stream);
  }
  EXPECT_EQ(cuEventSynchronize(done), 0);
  EXPECT_TRUE(buffer.Read(nullptr) == Bytes{7});
}

TEST(Event, CapturesItsStreamWhenRecorded) {
  const Environment environment;
  const Device device;
  const TestStream stream;
  const TestEvent event;
  EXPECT_EQ(cuEventQuery(event), kCudaOk);  // never recorded
  Gate first(stream);
  cuEventRecord(event, stream);
  Gate second(stream);
  EXPECT_EQ(cuEventQuery(event), kCudaNotReady);
  first.Open();
  EXPECT_EQ(cuEventSynchronize(event), 0);  // although the second is closed
  cuEventRecord(event, stream);
  EXPECT_EQ(cuEventQuery(event), kCudaNotReady);
}

TEST(Event, IsWaitedForAsItWasAtTheCall) {
  const Environment environment;
  const Device device;
  const TestStream producer;
  const TestStream consumer;
  const TestEvent event;
  EXPECT_EQ(cuStreamWaitEvent(consumer, event, 0), 0);  // never recorded: no wait
  consumer.Wait();
  Gate first(producer);
  cuEventRecord(event, producer);
  EXPECT_EQ(cuStreamWaitEvent(consumer, event, 0), 0);
  Gate second(producer);
  cuEventRecord(event, producer);  // later than the wait
  EXPECT_EQ(cuStreamQuery(consumer), kCudaNotReady);
  first.Open();
  consumer.Wait();
  EXPECT_EQ(cuEventQuery(event), kCudaNotReady);
}

TEST(Memory, OfAStreamFollowsItsOrder) {
  const Environment environment;
  const Device device;
  const TestStream stream;
  const Buffer<unsigned char> out(4);
  CudaAddress address = 0;
  Gate gate(stream);
  EXPECT_EQ(cuMemAllocAsync(&address, 4, stream), 0);
  EXPECT_EQ(cuMemsetD8Async(address, 9, 4, stream), 0);
  EXPECT_EQ(cuMemcpyDtoDAsync_v2(out.address(), address, 4, stream), 0);
  EXPECT_EQ(cuMemFreeAsync(address, stream), 0);
  gate.Open();
  EXPECT_TRUE(out.Read(stream) == Bytes(4, 9));
}

// The copy is called for before the free and runs after it, because nothing makes the streams wait
// for each other.
TEST(Memory, IsNotUsedAfterItsFree) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  const Device device(1);
  const TestStream owner;
  const TestStream other;
  const Buffer<unsigned char> out(4);
  CudaAddress address = 0;
  cuMemAllocAsync(&address, 4, owner);
  owner.Wait();
  Gate gate(other);
  EXPECT_EQ(cuMemcpyDtoDAsync_v2(out.address(), address, 4, other), 0);
  EXPECT_EQ(cuMemFreeAsync(address, owner), 0);
  owner.Wait();
  gate.Open();
  EXPECT_EQ(cuStreamSynchronize(other), kCudaIllegalAddress);
  EXPECT_TRUE(HasCalled("is used after its stream has freed it"));
  fake_gpu_forget();
  EXPECT_EQ(cuStreamSynchronize(other), kCudaOk);
}

TEST(Memory, IsNotUsedBeforeItsAllocation) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  const Device device;
  const TestStream owner;
  const TestStream other;
  CudaAddress address = 0;
  Gate gate(owner);
  cuMemAllocAsync(&address, 4, owner);
  EXPECT_EQ(cuMemsetD8Async(address, 1, 4, other), 0);
  EXPECT_EQ(cuStreamSynchronize(other), kCudaIllegalAddress);
  fake_gpu_forget();
  EXPECT_EQ(cuMemFreeAsync(address, owner), 0);
}

// The copy is called for before the write is over and runs after it, because the reader is held up.
TEST(Memory, IsForStreamsThatHaveWaitedForThoseThatUsedIt) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  const Device device;
  const Buffer<char> from(8);
  const Buffer<char> to(8);
  const TestStream writer;
  const TestStream reader;
  const TestEvent written;
  EXPECT_EQ(cuMemsetD8Async(from.address(), 7, 8, writer), 0);
  EXPECT_EQ(cuEventRecord(written, writer), 0);
  Gate gate(reader);
  cuMemcpyDtoDAsync_v2(to.address(), from.address(), 8, reader);
  writer.Wait();
  gate.Open();
  EXPECT_EQ(cuStreamSynchronize(reader), kCudaIllegalAddress);
  EXPECT_TRUE(HasCalled(" is read on stream "));
  fake_gpu_forget();
  EXPECT_EQ(cuStreamWaitEvent(reader, written, 0), 0);
  cuMemcpyDtoDAsync_v2(to.address(), from.address(), 8, reader);
  EXPECT_EQ(cuStreamSynchronize(reader), 0);
  EXPECT_EQ(static_cast<const char*>(to.data())[7], 7);
}

TEST(Memory, IsNotWrittenToOrFreedBesideAStreamThatReadsIt) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  const Device device;
  const Buffer<char> to(8);
  const TestStream owner;
  const TestStream reader;
  const TestEvent made;
  CudaAddress memory = 0;
  EXPECT_EQ(cuMemAllocAsync(&memory, 8, owner), 0);
  EXPECT_EQ(cuMemsetD8Async(memory, 7, 8, owner), 0);
  EXPECT_EQ(cuEventRecord(made, owner), 0);
  EXPECT_EQ(cuStreamWaitEvent(reader, made, 0), 0);
  EXPECT_EQ(cuMemcpyDtoDAsync_v2(to.address(), memory, 8, reader), 0);
  while (cuStreamQuery(reader) != 0) std::this_thread::yield();
  std::thread([&] {  // which knows nothing of what the other thread has waited for
    const Device here;
    cuMemsetD8Async(memory, 8, 8, owner);
    EXPECT_EQ(cuStreamSynchronize(owner), kCudaIllegalAddress);
    EXPECT_TRUE(HasCalled(" is written to on stream "));
    fake_gpu_forget();
    cuMemFreeAsync(memory, owner);
    EXPECT_EQ(cuStreamSynchronize(owner), kCudaIllegalAddress);
    EXPECT_TRUE(HasCalled("cuMemFreeAsync: "));
    fake_gpu_forget();
  })
      .join();
}

TEST(Time, IsThatOfKernelsAndOfEventsThatAreWaitedFor) {
  const Environment environment;
  const Device device;
  const TestStream stream;
  const TestStream other;
  const TestEvent event;
  fake_gpu_compute(stream, 1000);
  EXPECT_EQ(cuEventRecord(event, stream), 0);
  fake_gpu_compute(stream, 500);
  fake_gpu_compute(other, 200);
  EXPECT_EQ(fake_gpu_time(other), 200);
  EXPECT_EQ(cuStreamWaitEvent(other, event, 0), 0);
  fake_gpu_compute(other, 1);
  EXPECT_EQ(fake_gpu_time(other), 1001);
  EXPECT_EQ(fake_gpu_time(stream), 1500);
}

TEST(Memory, MisuseIsFound) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  const Device device;
  const Buffer<char> buffer(16);
  char host[32] = "";
  EXPECT_EQ(cuMemsetD8Async(buffer.address(), 0, 17, nullptr), kCudaInvalidValue);
  EXPECT_EQ(cuMemcpyHtoDAsync_v2(reinterpret_cast<CudaAddress>(host), host, 4, nullptr),
            kCudaInvalidValue);
  EXPECT_EQ(cuMemFree_v2(buffer.address() + 4), kCudaInvalidValue);
  CudaAddress address = 0;
  cuMemAlloc_v2(&address, 8);
  EXPECT_EQ(cuMemFree_v2(address), kCudaOk);
  EXPECT_EQ(cuMemFree_v2(address), kCudaInvalidValue);
  EXPECT_EQ(cuMemsetD8Async(address, 0, 8, nullptr), kCudaInvalidValue);
  EXPECT_TRUE(HasCalled("is freed twice"));
}

TEST(Memory, RunsOut) {
  const Environment environment("FAKE_CUDA_NO_MEMORY_AT", "100");
  const Device device;
  CudaAddress address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 100), kCudaOutOfMemory);
  EXPECT_EQ(cuMemAllocAsync(&address, 100, nullptr), kCudaOutOfMemory);
  const Buffer<char> smaller(99);
}

TEST(Handles, OfDestroyedObjectsAreFound) {
  const Environment environment("FAKE_GPU_STRICT", "0");
  const Device device;
  void* stream = nullptr;
  void* event = nullptr;
  cuStreamCreateWithPriority(&stream, 1, 0);
  cuEventCreate(&event, 0);
  EXPECT_EQ(cuStreamDestroy_v2(stream), kCudaOk);
  EXPECT_EQ(cuEventDestroy_v2(event), kCudaOk);
  EXPECT_EQ(cuStreamQuery(stream), kCudaInvalidHandle);
  EXPECT_EQ(cuStreamDestroy_v2(stream), kCudaInvalidHandle);
  EXPECT_EQ(cuEventQuery(event), kCudaInvalidHandle);
  EXPECT_EQ(cuEventRecord(event, nullptr), kCudaInvalidHandle);
}

TEST(Records, NameCallsAndLeaks) {
  const Environment environment;
  EXPECT_EQ(Leaks(), "");
  const Device device;
  const TestStream stream;
  const Buffer<char> buffer(64);
  cuMemsetD8Async(buffer.address() + 8, 3, 4, stream);
  stream.Wait();
  EXPECT_TRUE(HasCalled("+8 value=3 bytes=4 stream="));
  EXPECT_EQ(fake_gpu_leaks(nullptr, 0), 3);
  EXPECT_TRUE(Leaks().find("context of device 0\n") != std::string::npos);
  fake_gpu_forget();
  EXPECT_EQ(std::string(fake_gpu_calls()), "");
}

TEST(Capture, IsWhatTheTestSays) {
  const Environment environment;
  const Device device;
  int status = -1;
  EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), 0);
  EXPECT_EQ(status, 0);
  fake_gpu_capture(1);
  EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), 0);
  EXPECT_EQ(status, 1);
  fake_gpu_capture(0);
  int mode = 2;
  EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), 0);
  EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), 0);
  EXPECT_EQ(mode, 2);
}

}  // namespace
}  // namespace fake_gpu::test
