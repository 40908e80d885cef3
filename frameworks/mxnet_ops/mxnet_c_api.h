// The part of MXNet that is used here, declared by ourselves: nothing of MXNet is needed to
// compile. Its functions are handed over by Python, which has the library loaded. Facts:
// mxnet/c_api.h, mxnet/engine.h, mxnet/ndarray.h and dmlc/logging.h of MXNet 1.9.1, the last
// release.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace dmlc {

// What MXNet's engine takes for the failure of an operation.
struct Error : public std::runtime_error {
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace dmlc

namespace hvd::mxnet {

using NDArrayHandle = void*;

// What arrays have in common that are views of one memory; the engine orders by it. An array begins
// with a shared pointer to it.
inline const void* MemoryOf(NDArrayHandle array) { return *static_cast<void**>(array); }

struct Context {
  int32_t device_type;  // 1: CPU
  int32_t device_id;
};

// How an operation tells the engine that it is complete; from any thread.
class OnComplete {
 public:
  void operator()(const dmlc::Error* error) const { callback_(engine_, parameter_, error); }

 private:
  void (*callback_)(void* engine, void* parameter, const dmlc::Error* error);
  void* engine_;
  void* parameter_;
};

using AsyncFunction = void (*)(void* run_context, void* on_complete, void* parameter);

constexpr int kAsync =
    4;  // FnProperty: started on whichever thread finds it ready, because it never blocks

}  // namespace hvd::mxnet

extern "C" {

// 0 or -1, as all functions of MXNet.
struct horovod_mxnet_functions {
  int (*get_data)(void* array, void** data);
  int (*shallow_copy)(void* array, void** copy);
  int (*free)(void* array);
  int (*push)(void (*function)(void*, void*, void*), void* parameter, void (*deleter)(void*),
              const void* context, void** inputs, int num_inputs, void** outputs, int num_outputs,
              const void* property, int priority, const char* name, bool wait);

  // Lets the engine turn the layout of oneDNN, if an array will have it by then, into the usual
  // one. Null where MXNet is built without oneDNN. A C++ method of the array: it has no other
  // argument.
  void (*to_usual_layout)(const void* array);
};
}
