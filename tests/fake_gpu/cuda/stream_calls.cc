// The driver's functions for streams and events.

#include <atomic>
#include <map>
#include <string>

#include "cuda/abi.h"
#include "cuda/context.h"
#include "cuda/handle_table.h"
#include "cuda/record.h"
#include "cuda/stream.h"

namespace fake_gpu {
namespace {

HandleTable<Stream>& Streams() {
  static auto* table = new HandleTable<Stream>(0x20000000);
  return *table;
}

HandleTable<Event>& Events() {
  static auto* table = new HandleTable<Event>(0x30000000);
  return *table;
}

StreamPtr DefaultStream(int device) {
  static auto* mutex = new std::mutex;  // guards streams
  static auto* streams = new std::map<int, StreamPtr>;
  std::lock_guard<std::mutex> lock(*mutex);
  StreamPtr& stream = (*streams)[device];
  if (stream == nullptr) stream = std::make_shared<Stream>(0, device);
  return stream;
}

std::atomic<int> capture_status{0};

// For a call on one event; null with the result of the call.
std::shared_ptr<Event> EventFor(const char* call, void* handle, int* result) {
  int device;
  *result = NeedDevice(&device);
  if (*result != kCudaOk) return nullptr;
  std::shared_ptr<Event> event = Events().Find(handle);
  if (event == nullptr) {
    *result = Fail(kCudaInvalidHandle, std::string(call) + " of an event that was destroyed");
  }
  return event;
}

// For a call that puts no work on the stream, which may be of another device.
StreamPtr StreamFor(const char* call, void* handle, int* result) {
  int device;
  *result = NeedDevice(&device);
  if (*result != kCudaOk) return nullptr;
  StreamPtr stream = FindStream(handle, device);
  if (stream == nullptr) {
    *result = Fail(kCudaInvalidHandle, std::string(call) + " of a stream that was destroyed");
  }
  return stream;
}

std::shared_ptr<Moment> LastOf(Event* event) {
  std::lock_guard<std::mutex> lock(event->mutex);
  return event->last;
}

}  // namespace

StreamPtr FindStream(void* handle, int device) {
  // 1 and 2 are the names of the default stream: of the device, and of the thread.
  if (reinterpret_cast<uintptr_t>(handle) <= 2) return DefaultStream(device);
  return Streams().Find(handle);
}

StreamPtr StreamForWork(const char* call, void* handle, int* result) {
  StreamPtr stream = StreamFor(call, handle, result);
  if (stream == nullptr) return nullptr;
  if (stream->device() != CurrentDevice()) {
    *result = Fail(kCudaInvalidHandle, std::string(call) + ": stream " + stream->Name() +
                                           " is of device " + std::to_string(stream->device()) +
                                           ", the current context of device " +
                                           std::to_string(CurrentDevice()));
    return nullptr;
  }
  if (stream->IsCapturing()) {
    *result = Fail(kCudaCaptureIsolation,
                   std::string(call) + " on stream " + stream->Name() + ", which captures a graph");
    return nullptr;
  }
  if (stream->IsHeld()) {
    *result = Fail(kCudaInvalidValue, std::string(call) + " on stream " + stream->Name() +
                                          " overtakes a call of NCCL that is in progress");
    return nullptr;
  }
  return stream;
}

void WaitForDevice(int device) {
  DefaultStream(device)->Wait();
  for (const StreamPtr& stream : Streams().All()) {
    if (stream->device() == device) stream->Wait();
  }
}

}  // namespace fake_gpu

using namespace fake_gpu;

int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  int device;
  if (const int result = NeedDevice(&device)) return result;
  *stream = Streams().Add([&](int number) { return std::make_shared<Stream>(number, device); });
  const std::string name = Streams().Find(*stream)->Name();
  Record("cuStreamCreateWithPriority", "stream", name, "device", device, "flags", flags, "priority",
         priority);
  Own("stream", name);
  return kCudaOk;
}

int cuStreamDestroy_v2(void* handle) {
  int device;
  if (const int result = NeedDevice(&device)) return result;
  const StreamPtr stream = Streams().Take(handle);
  if (stream == nullptr) return Fail(kCudaInvalidHandle, "a stream is destroyed twice");
  Record("cuStreamDestroy", "stream", stream->Name());
  Disown("stream", stream->Name());
  stream->Close();
  return kCudaOk;
}

int cuStreamWaitEvent(void* stream_handle, void* event_handle, unsigned) {
  int result;
  const StreamPtr stream = StreamForWork("cuStreamWaitEvent", stream_handle, &result);
  if (stream == nullptr) return result;
  const auto event = EventFor("cuStreamWaitEvent", event_handle, &result);
  if (event == nullptr) return result;
  Record("cuStreamWaitEvent", "stream", stream->Name(), "event", event->number);
  if (const auto moment = LastOf(event.get())) {
    stream->Enqueue([moment, on = stream.get()] {
      moment->Wait();
      on->Follow(*moment);
    });
  }
  return kCudaOk;
}

int cuStreamQuery(void* handle) {
  int result;
  const StreamPtr stream = StreamFor("cuStreamQuery", handle, &result);
  if (stream == nullptr) return result;
  if (!stream->IsIdle()) return kCudaNotReady;
  stream->Wait();  // not at all
  return kCudaOk;
}

int cuStreamSynchronize(void* handle) {
  int result;
  const StreamPtr stream = StreamFor("cuStreamSynchronize", handle, &result);
  if (stream == nullptr) return result;
  Record("cuStreamSynchronize", "stream", stream->Name());
  stream->Wait();
  int device;
  return NeedDevice(&device);
}

int cuLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  int result;
  const StreamPtr stream = StreamForWork("cuLaunchHostFunc", handle, &result);
  if (stream == nullptr) return result;
  Record("cuLaunchHostFunc", "stream", stream->Name());
  stream->Enqueue([=] { function(argument); });
  return kCudaOk;
}

int cuStreamIsCapturing(void* handle, int* status) {
  int result;
  const StreamPtr stream = StreamFor("cuStreamIsCapturing", handle, &result);
  if (stream == nullptr) return result;
  *status = stream->IsCapturing() ? 1 : capture_status.load();
  return kCudaOk;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int current = 0;
  std::swap(current, *mode);
  return kCudaOk;
}

int cuEventCreate(void** event, unsigned flags) {
  int device;
  if (const int result = NeedDevice(&device)) return result;
  *event = Events().Add([&](int number) { return std::make_shared<Event>(number, device); });
  const int number = Events().Find(*event)->number;
  Record("cuEventCreate", "event", number, "device", device, "flags", flags);
  Own("event", std::to_string(number));
  return kCudaOk;
}

int cuEventDestroy_v2(void* handle) {
  int device;
  if (const int result = NeedDevice(&device)) return result;
  const auto event = Events().Take(handle);
  if (event == nullptr) return Fail(kCudaInvalidHandle, "an event is destroyed twice");
  Record("cuEventDestroy", "event", event->number);
  Disown("event", std::to_string(event->number));
  return kCudaOk;
}

int cuEventRecord(void* event_handle, void* stream_handle) {
  int result;
  const StreamPtr stream = StreamForWork("cuEventRecord", stream_handle, &result);
  if (stream == nullptr) return result;
  const auto event = EventFor("cuEventRecord", event_handle, &result);
  if (event == nullptr) return result;
  Record("cuEventRecord", "event", event->number, "stream", stream->Name());
  if (event->device != stream->device()) {
    return Fail(kCudaInvalidHandle, "cuEventRecord: event and stream are of different devices");
  }
  auto moment = std::make_shared<Moment>();
  std::lock_guard<std::mutex> lock(event->mutex);
  event->last = moment;
  stream->Enqueue([moment, on = stream.get()] { moment->Reach(on->order(), on->time_us()); });
  return kCudaOk;
}

int cuEventQuery(void* handle) {
  int result;
  const auto event = EventFor("cuEventQuery", handle, &result);
  if (event == nullptr) return result;
  const auto moment = LastOf(event.get());
  if (moment == nullptr) return kCudaOk;
  if (!moment->IsReached()) return kCudaNotReady;
  OrderOfThread().Add(moment->order());
  return kCudaOk;
}

int cuEventSynchronize(void* handle) {
  int result;
  const auto event = EventFor("cuEventSynchronize", handle, &result);
  if (event == nullptr) return result;
  Record("cuEventSynchronize", "event", event->number);
  if (const auto moment = LastOf(event.get())) {
    moment->Wait();
    OrderOfThread().Add(moment->order());
  }
  int device;
  return NeedDevice(&device);
}

void fake_gpu_compute(void* handle, long long microseconds) {
  int result;
  const StreamPtr stream = StreamForWork("fake_gpu_compute", handle, &result);
  if (stream == nullptr) return;
  stream->Enqueue(
      [on = stream.get(), microseconds] { on->WaitUntil(on->time_us() + microseconds); });
}

long long fake_gpu_time(void* handle) {
  int result;
  const StreamPtr stream = StreamFor("fake_gpu_time", handle, &result);
  return stream == nullptr ? -1 : stream->Wait();
}

void fake_gpu_capture(int status) { capture_status = status; }

void fake_gpu_capture_stream(void* stream, int captures) {
  if (const StreamPtr found = Streams().Find(stream)) found->Capture(captures != 0);
}
