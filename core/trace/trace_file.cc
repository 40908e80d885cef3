#include "trace/trace_file.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/text.h"
#include "settings/output_file.h"

namespace hvd {

namespace {

constexpr off_t kPage = 4096;  // the smallest there is: a larger page consists of them
constexpr std::string_view kClosing = "]\n";

off_t PageAfter(off_t offset) { return (offset / kPage + 1) * kPage; }

constexpr uint32_t kReplacement = 0xFFFD;

void AppendEscape(uint32_t unit, std::string* json) {
  constexpr char kDigits[] = "0123456789abcdef";
  *json += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) *json += kDigits[unit >> shift & 0xF];
}

}  // namespace

Status TraceFile::Open(const std::string& path, std::string_view first) {
  HVD_RETURN_IF_ERROR(OpenOutputFile(path, "the timeline", &fd_));
  path_ = path;
  std::string page = "[\n";
  page += first;
  at_ = static_cast<off_t>(page.size());
  end_ = kPage;
  page.resize(static_cast<size_t>(kPage) - kClosing.size(), ' ');
  page += kClosing;
  if (Put(page, 0)) Reserve();
  return Status::Ok();
}

void TraceFile::Append(std::string_view element) {
  if (!status_.ok() || element.size() > kLongest) return;
  const off_t wanted = static_cast<off_t>(pending_.size() + 2 + element.size());
  if (at_ + wanted > PageAfter(at_)) {
    const off_t next = PageAfter(at_);
    Flush();
    at_ = next;
  }
  if (at_ + kPage >= end_) Reserve();
  if (!status_.ok()) return;
  pending_.reserve(pending_.size() + 2 +
                   element.size());  // all of it or, for want of memory, nothing
  pending_ += ",\n";
  pending_ += element;
}

void TraceFile::Flush() {
  if (!status_.ok() || pending_.empty()) return;
  if (Put(pending_, at_)) {
    at_ += static_cast<off_t>(pending_.size());
  } else {  // half an element would spoil the rest
    (void)Put(std::string(pending_.size(), ' '), at_);
  }
  pending_.clear();
}

void TraceFile::Reserve() {
  const std::string blanks(kReserved, ' ');
  const off_t bracket = end_ - static_cast<off_t>(kClosing.size());
  if (!Put(blanks, end_)) {
    [[maybe_unused]] const int ignored = ftruncate(fd_, end_);
    return;
  }
  const off_t grown = end_ + kReserved;
  if (!Put("  ", bracket)) return;
  if (Put(kClosing, grown - static_cast<off_t>(kClosing.size()))) {
    end_ = grown;
  } else {
    [[maybe_unused]] const ssize_t ignored = pwrite(fd_, kClosing.data(), kClosing.size(), bracket);
  }
}

bool TraceFile::Put(std::string_view bytes, off_t at) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      if (written == 0) errno = ENOSPC;
      if (status_.ok()) status_ = Status::Errno("the timeline: cannot write " + path_);
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
    at += written;
  }
  return true;
}

void TraceFile::Close() {
  if (fd_ < 0) return;
  Flush();
  // The last page keeps its bracket where something has failed: it may be impossible to write
  // another.
  constexpr std::string_view kEnd = "\n]\n";
  const off_t size = static_cast<off_t>(kEnd.size());
  const off_t last = at_ + size > PageAfter(at_) ? PageAfter(at_) : at_;
  if (status_.ok() && last + size <= end_ && Put(kEnd, last)) {
    [[maybe_unused]] const int ignored = ftruncate(fd_, last + size);
  }
  close(fd_);
  fd_ = -1;
}

void AppendQuoted(std::string_view text, std::string* json) {
  *json += '"';
  while (!text.empty()) {
    const CodePoint point = FirstCodePoint(text);
    const uint32_t value = point.valid ? point.value : kReplacement;
    if (value == '"' || value == '\\') *json += '\\';
    if (value >= 0x20 && value < 0x7F) {
      *json += static_cast<char>(value);
    } else if (value < 0x10000) {
      AppendEscape(value, json);
    } else {
      AppendEscape(0xD800 + ((value - 0x10000) >> 10), json);
      AppendEscape(0xDC00 + ((value - 0x10000) & 0x3FF), json);
    }
    text.remove_prefix(point.bytes);
  }
  *json += '"';
}

void AppendNumber(int64_t number, std::string* json) {
  char digits[24];
  json->append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

void AppendMicros(int64_t nanos, std::string* json) {
  if (nanos < 0) *json += '-';  // also of less than one
  const uint64_t size = nanos < 0 ? -static_cast<uint64_t>(nanos) : static_cast<uint64_t>(nanos);
  AppendNumber(static_cast<int64_t>(size / 1000), json);
  const auto rest = static_cast<int>(size % 1000);
  const char fraction[] = {'.', static_cast<char>('0' + rest / 100),
                           static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
  json->append(fraction, sizeof fraction);
}

}  // namespace hvd
