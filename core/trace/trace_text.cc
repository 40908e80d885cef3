#include "trace/trace_text.h"

#include <charconv>

#include "base/text.h"

namespace hvd {

namespace {

constexpr uint32_t kReplacement = 0xFFFD;

void AppendEscape(uint32_t unit, std::string* json) {
  constexpr char kDigits[] = "0123456789abcdef";
  *json += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) *json += kDigits[unit >> shift & 0xF];
}

}  // namespace

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
  const char fraction[] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
  json->append(fraction, sizeof fraction);
}

}  // namespace hvd
