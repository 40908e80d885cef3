#include "xla_ops/gpu.h"

#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "xla_ops/call.h"
#include "xla_ops/errors.h"
#include "xla_ops/frame.h"

namespace hvd::xla {

namespace {

// What this file needs of CUDA's driver, which XLA has loaded, and whose context is the current
// one.
struct Driver {
  int (*to_host)(void* to, uintptr_t from, size_t bytes, void* stream) = nullptr;
  int (*to_gpu)(uintptr_t to, const void* from, size_t bytes, void* stream) = nullptr;
  int (*wait)(void* stream) = nullptr;
  int (*error_text)(int error, const char** text) = nullptr;

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    Find(library, "cuMemcpyDtoHAsync_v2", &to_host);
    Find(library, "cuMemcpyHtoDAsync_v2", &to_gpu);
    Find(library, "cuStreamSynchronize", &wait);
    Find(library, "cuGetErrorString", &error_text);
  }

  bool IsThere() const { return to_host && to_gpu && wait && error_text; }

 private:
  template <typename F>
  static void Find(void* library, const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(library, name));
  }
};

const Driver& TheDriver() {
  static const Driver driver;
  return driver;
}

// The stream on which XLA runs a program; null where it does not say.
bool StreamOf(const Frame& frame, void** stream) {
  StreamArguments arguments{sizeof(StreamArguments), nullptr, frame.context, nullptr};
  const bool told = frame.api->stream(&arguments) == nullptr;
  *stream = arguments.stream;
  return told;
}

// Copies in the memory of the host of what a frame has on the GPU: as its buffers, in their order.
class OnHost {
 public:
  explicit OnHost(const Buffers& buffers) : all_(buffers), buffers_(Size()), places_(Size()) {
    for (size_t i = 0; i < Size(); ++i) {
      buffers_[i] = *static_cast<const Buffer*>(buffers.buffers[i]);
      places_[i] = &buffers_[i];
      if (buffers_[i].type == kToken) continue;
      memory_.emplace_back(new std::byte[static_cast<size_t>(BytesOf(buffers_[i])) + 1]);
      buffers_[i].data = memory_.back().get();
    }
    all_.buffers = places_.data();
  }

  // As a frame names them.
  const Buffers& buffers() const { return all_; }

  // Calls `copy(gpu, host, bytes)` for each, until one fails.
  template <typename Copy>
  int ForEach(const Buffers& on_gpu, Copy copy) const {
    for (size_t i = 0; i < Size(); ++i) {
      const auto bytes = static_cast<size_t>(BytesOf(buffers_[i]));
      if (buffers_[i].type == kToken || bytes == 0) continue;
      const void* const gpu = static_cast<const Buffer*>(on_gpu.buffers[i])->data;
      if (const int code = copy(reinterpret_cast<uintptr_t>(gpu), buffers_[i].data, bytes))
        return code;
    }
    return 0;
  }

 private:
  size_t Size() const { return static_cast<size_t>(all_.count); }

  Buffers all_;
  std::vector<Buffer> buffers_;
  std::vector<void*> places_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

Error* GpuError(const Api& api, int code) {
  const char* text = nullptr;
  TheDriver().error_text(code, &text);
  const std::string told = std::string("the GPU copies nothing for an operation of horovod: ") +
                           (text == nullptr ? "error " + std::to_string(code) : text);
  return MakeError(api, kInternal, told.c_str());
}

Error* Through(hvd_api* core, Frame* frame, void* stream) {
  const Driver& driver = TheDriver();
  const OnHost given(frame->arguments);
  const OnHost made(frame->results);
  int code = given.ForEach(frame->arguments, [&](uintptr_t gpu, void* host, size_t bytes) {
    return driver.to_host(host, gpu, bytes, stream);
  });
  // Also behind a copy that failed: those before it write to memory that is freed here.
  if (const int waited = driver.wait(stream); code == 0) code = waited;
  if (code != 0) return GpuError(*frame->api, code);

  Frame on_host = *frame;
  on_host.arguments = given.buffers();
  on_host.results = made.buffers();
  const Failure failure = Run(core, on_host);
  if (failure.code != 0) return MakeError(*frame->api, failure.code, failure.message.c_str());

  code = made.ForEach(frame->results, [&](uintptr_t gpu, const void* host, size_t bytes) {
    return driver.to_gpu(gpu, host, bytes, stream);
  });
  if (const int waited = driver.wait(stream); code == 0) code = waited;
  return code == 0 ? nullptr : GpuError(*frame->api, code);
}

}  // namespace

Error* RunOnGpu(hvd_api* core, Frame* frame) {
  try {
    void* stream = nullptr;
    if (!TheDriver().IsThere() || !StreamOf(*frame, &stream)) {
      return MakeError(*frame->api, kFailedPrecondition,
                       "horovod finds no driver of CUDA (libcuda.so.1) for a program that XLA runs "
                       "on a GPU: call hvd outside of compiled functions");
    }
    return Through(core, frame, stream);
  } catch (const std::bad_alloc&) {
    return MakeError(*frame->api, kResourceExhausted, "no memory to start an operation of horovod");
  }
}

}  // namespace hvd::xla
