#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hvd::fuzz {

// UTF-8 by its definition (RFC 3629), written apart from the product's: -1 where it is none; else
// how many characters there are, each of which `visit(code point)` has seen.
template <typename Visit>
int64_t DecodeUtf8(std::string_view text, Visit&& visit) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) {
    const auto byte = [&](size_t at) -> uint32_t {
      return at < text.size() ? static_cast<uint8_t>(text[at]) : 0u;
    };
    const auto tail = [&](size_t at) { return (byte(at) & 0xC0) == 0x80; };
    const uint32_t lead = byte(i);
    uint32_t value = lead;
    size_t length = 1;
    if (lead >= 0x80) {
      length = (lead & 0xE0) == 0xC0   ? 2
               : (lead & 0xF0) == 0xE0 ? 3
               : (lead & 0xF8) == 0xF0 ? 4
                                       : 0;
      if (length == 0) return -1;
      value = lead & (0x7Fu >> length);
      for (size_t k = 1; k < length; ++k) {
        if (!tail(i + k)) return -1;
        value = value << 6 | (byte(i + k) & 0x3F);
      }
      const uint32_t least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
      if (value < least || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return -1;
    }
    visit(value);
    i += length;
  }
  return count;
}

inline int64_t CountUtf8(std::string_view text) {
  return DecodeUtf8(text, [](uint32_t) {});
}

// Neither control characters nor a change of the direction of writing.
inline bool IsHarmless(std::string_view text, bool keeps_lines = false) {
  bool harmless = true;
  const int64_t count = DecodeUtf8(text, [&](uint32_t value) {
    const bool control = value < 0x20 || (value >= 0x7F && value < 0xA0);
    const bool steers = (value >= 0x202A && value <= 0x202E) ||
                        (value >= 0x2066 && value <= 0x2069) || value == 0x2028 ||
                        value == 0x2029 || value == 0xFEFF;
    if ((control && !(keeps_lines && value == '\n')) || steers) harmless = false;
  });
  return count >= 0 && harmless;
}

}  // namespace hvd::fuzz
