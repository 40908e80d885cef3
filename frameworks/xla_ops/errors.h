// What went wrong, in the words of XLA.
#pragma once

#include <string>

#include "api/c_api.h"
#include "xla_ops/xla_ffi.h"

namespace hvd::xla {

struct Failure {
  int code = 0;  // of XLA; 0: none
  std::string message;
};

// Of an operation of the core.
Failure FailureOf(const hvd_result& result);

Error* MakeError(const Api& api, int code, const char* message);

// Null where XLA makes none.
Future* MakeFuture(const Api& api);

// Both end the life of the future.
void Complete(const Api& api, Future* future);
void Fail(const Api& api, Future* future, const Failure& failure);

}  // namespace hvd::xla
