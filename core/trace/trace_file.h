#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd {

// A JSON array on disk, an element a line, which is whole JSON wherever the process is killed.
//
// A killed process leaves a write half done, but only between two pages of the file. So the closing
// bracket stands ahead, behind reserved blanks, and no write of elements crosses a page. To reserve
// more, blanks are written behind the bracket, where they are blanks too, and then the bracket
// moves: only between those two writes, once in kReserved bytes, is the file an array without its
// end, which the viewers accept as well. A full disk is noticed when blanks are reserved; the file
// stays whole.
class TraceFile {
 public:
  static constexpr off_t kReserved = 256 << 10;

  TraceFile() = default;
  ~TraceFile() { Close(); }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // An existing file is replaced. The array is never empty: `first` is its first element. An error
  // only where the file cannot be opened; see `status` for what comes later.
  Status Open(const std::string& path, std::string_view first);

  // At most kLongest bytes.
  void Append(std::string_view element);
  static constexpr size_t kLongest = 4000;

  // Writes what has been appended.
  void Flush();

  // Also cuts the blanks off.
  void Close();

  // The first failure. Nothing is written after it.
  const Status& status() const { return status_; }

 private:
  void Reserve();
  bool Put(std::string_view bytes, off_t at);

  int fd_ = -1;
  std::string path_;
  std::string pending_;  // lies within one page
  off_t at_ = 0;         // where pending_ goes
  off_t end_ = 0;        // of the file; "]\n" stands before it, alone on its page but for the first
  Status status_;
};

// The text of its elements.

// A JSON string of plain ASCII, at most six characters per byte. What is no UTF-8 becomes U+FFFD.
void AppendQuoted(std::string_view text, std::string* json);

void AppendNumber(int64_t number, std::string* json);

// Microseconds, to the nanosecond: "1234.567".
void AppendMicros(int64_t nanos, std::string* json);

}  // namespace hvd
