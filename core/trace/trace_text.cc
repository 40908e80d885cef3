#include "trace/trace_text.h"

#include <charconv>

namespace hvd {

namespace {

constexpr uint32_t kReplacement = 0xFFFD;

struct CodePoint {
  uint32_t value;
  size_t bytes;
};

// The first code point of `text`: one byte is taken for what is cut off, overlong, a surrogate or too large.
CodePoint First(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {kReplacement, 1};
  uint32_t value = lead & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return {kReplacement, 1};
    value = value << 6 | (next & 0x3Fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value < 0xE000;
  if (value < kSmallest[bytes] || value > 0x10FFFF || surrogate) return {kReplacement, 1};
  return {value, bytes};
}

void AppendEscape(uint32_t unit, std::string* json) {
  constexpr char kDigits[] = "0123456789abcdef";
  *json += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) *json += kDigits[unit >> shift & 0xF];
}

}  // namespace

void AppendQuoted(std::string_view text, std::string* json) {
  *json += '"';
  while (!text.empty()) {
    const CodePoint point = First(text);
    if (point.value == '"' || point.value == '\\') *json += '\\';
    if (point.value >= 0x20 && point.value < 0x7F) {
      *json += static_cast<char>(point.value);
    } else if (point.value < 0x10000) {
      AppendEscape(point.value, json);
    } else {
      AppendEscape(0xD800 + ((point.value - 0x10000) >> 10), json);
      AppendEscape(0xDC00 + ((point.value - 0x10000) & 0x3FF), json);
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
  AppendNumber(nanos / 1000, json);
  const auto rest = static_cast<int>(nanos % 1000);
  const char fraction[] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
  json->append(fraction, sizeof fraction);
}

}  // namespace hvd
