#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/shared_text.h"

namespace hvd {

// Why an operation failed. Each code becomes one exception type at the Python edge.
enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument,  // this caller did something wrong (ValueError)
  kMismatch,         // ranks disagree about one operation (TensorMismatchError)
  kDuplicate,        // a name is already in flight on this rank (ValueError)
  kAborted,          // the generation is lost: a peer died, stalled or corrupted (HorovodInternalError)
  kShutdown,         // the engine was shut down before the operation completed
  kNotInitialized,   // no engine
  kUnavailable,      // the system refused a resource (descriptor, mapping, socket)
  kTimeout,          // a wait with a time limit ended first; the operation goes on
  kInternal,         // a broken invariant of ours
};

// A copyable error value; a copy needs no memory. Inside the core errors are values; they become exceptions
// at the edge.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, SharedText message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }
  static Status Invalid(SharedText m) { return {Code::kInvalidArgument, std::move(m)}; }
  static Status Aborted(SharedText m) { return {Code::kAborted, std::move(m)}; }
  static Status Internal(SharedText m) { return {Code::kInternal, std::move(m)}; }
  // `what` failed with the current errno, whose text is appended.
  static Status Errno(const std::string& what);

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_.str(); }
  const SharedText& text() const { return message_; }

 private:
  Code code_ = Code::kOk;
  SharedText message_;
};

}  // namespace hvd

#define HVD_RETURN_IF_ERROR(expr)              \
  do {                                         \
    ::hvd::Status hvd_status_ = (expr);        \
    if (!hvd_status_.ok()) return hvd_status_; \
  } while (0)
