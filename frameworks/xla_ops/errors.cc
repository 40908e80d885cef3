#include "xla_ops/errors.h"

#include "base/status.h"

namespace hvd::xla {

namespace {

int CodeOf(int32_t code) {
  switch (static_cast<Code>(code)) {
    case Code::kInvalidArgument:
    case Code::kDuplicate:
      return kInvalidArgument;
    case Code::kMismatch:
    case Code::kNotInitialized:
      return kFailedPrecondition;
    case Code::kAborted:
    case Code::kShutdown:
      return kUnknown;  // as outside of compiled functions: see tensorflow_ops/core.cc
    default:
      return kInternal;
  }
}

}  // namespace

Failure FailureOf(const hvd_result& result) {
  if (result.code == 0) return {};
  const int code = CodeOf(result.code);
  // Elastic training knows by the first word that the generation is lost.
  return {code, std::string(code == kUnknown ? "HorovodInternalError: " : "") + result.message};
}

Error* MakeError(const Api& api, int code, const char* message) {
  ErrorArguments arguments{sizeof(ErrorArguments), nullptr, message, code};
  return api.create_error(&arguments);
}

Future* MakeFuture(const Api& api) {
  FutureArguments arguments{sizeof(FutureArguments), nullptr, nullptr};
  return api.create_future(&arguments) == nullptr ? arguments.future : nullptr;
}

void Complete(const Api& api, Future* future) {
  FutureArguments arguments{sizeof(FutureArguments), nullptr, future};
  api.complete(&arguments);
}

void Fail(const Api& api, Future* future, const Failure& failure) {
  FutureErrorArguments arguments{sizeof(FutureErrorArguments), nullptr, future,
                                 MakeError(api, failure.code, failure.message.c_str())};
  api.fail(&arguments);
}

}  // namespace hvd::xla
