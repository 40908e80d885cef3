#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace hvd {

// A text that never changes. Its copies share it: to copy one needs no memory and cannot fail,
// which is what an error needs that many operations end with when there is no memory left.
class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string text)  // NOLINT: a text is one
      : text_(text.empty() ? nullptr : std::make_shared<const std::string>(std::move(text))) {}
  SharedText(const char* text) : SharedText(std::string(text)) {}  // NOLINT

  const std::string& str() const noexcept {
    static const std::string none;
    return text_ == nullptr ? none : *text_;
  }
  bool empty() const noexcept { return text_ == nullptr; }
  bool operator==(const SharedText& other) const noexcept { return str() == other.str(); }

 private:
  std::shared_ptr<const std::string> text_;  // null: empty
};

// Why an operation failed. Each code becomes one exception type at the Python edge.
enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument,  // this caller did something wrong (ValueError)
  kMismatch,         // ranks disagree about one operation (TensorMismatchError)
  kDuplicate,        // a name is already in flight on this rank (ValueError)
  kAborted,   // the generation is lost: a peer died, stalled or corrupted (HorovodInternalError)
  kShutdown,  // the engine was shut down before the operation completed
  kNotInitialized,  // no engine
  kUnavailable,     // the system refused a resource (descriptor, mapping, socket)
  kTimeout,         // a wait with a time limit ended first; the operation goes on
  kInternal,        // a broken invariant of ours
  kNotice,          // it did not take place: see negotiate::Request; the message is a number
};

// A copyable error value; a copy needs no memory. Inside the core errors are values; they become
// exceptions at the edge.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, SharedText message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }
  static Status Invalid(SharedText m) { return {Code::kInvalidArgument, std::move(m)}; }
  static Status Aborted(SharedText m) { return {Code::kAborted, std::move(m)}; }
  static Status Internal(SharedText m) { return {Code::kInternal, std::move(m)}; }
  static Status Notice(uint8_t bits) { return {Code::kNotice, std::to_string(bits)}; }
  // `what` failed with the current errno, whose text is appended.
  static Status Errno(const std::string& what) {
    const int error = errno;
    return {Code::kUnavailable, what + ": " + std::strerror(error)};
  }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_.str(); }
  const SharedText& text() const { return message_; }

 private:
  Code code_ = Code::kOk;
  SharedText message_;
};

// Makes the calling thread's record of exceptions. In a libstdc++ that was loaded with this library
// it is made at the thread's first exception otherwise, and where there is no memory for it, as
// with the first std::bad_alloc, the C library ends the process.
inline void PrepareToThrow() noexcept {
  // Volatile: the compiler may leave out the call where nobody wants its result.
  [[maybe_unused]] const volatile int record = std::uncaught_exceptions();
}

// Does `work`; false where there was no memory for it.
template <typename Work>
bool HasMemoryFor(Work work) {
  try {
    work();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace hvd

#define HVD_RETURN_IF_ERROR(expr)              \
  do {                                         \
    ::hvd::Status hvd_status_ = (expr);        \
    if (!hvd_status_.ok()) return hvd_status_; \
  } while (0)
