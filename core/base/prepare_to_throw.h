#pragma once

#include <exception>

namespace hvd {

// Makes the calling thread's record of exceptions. In a libstdc++ that was loaded with this library it is
// made at the thread's first exception otherwise, and where there is no memory for it, as with the first
// std::bad_alloc, the C library ends the process.
inline void PrepareToThrow() noexcept {
  // Volatile: the compiler may leave out the call where nobody wants its result.
  [[maybe_unused]] const volatile int record = std::uncaught_exceptions();
}

}  // namespace hvd
