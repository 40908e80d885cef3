#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

// Text from outside (tensor names, paths, what peers say) may hold anything: sequences that steer a
// terminal, line breaks that forge a line, characters that turn the direction of writing, bytes
// that are no text.

struct CodePoint {
  uint32_t value;
  size_t bytes;
  bool valid;
};

// The first code point of a text that is not empty, as UTF-8. What is cut off, overlong, a
// surrogate or too large is not valid: then `bytes` is 1 and `value` that byte.
CodePoint FirstCodePoint(std::string_view text);

// `text` with everything that is invisible, steers a terminal or is no UTF-8 written out, as
// Python's repr() does: "\x1b", "\u202e", "\xff". The result is valid UTF-8 without a NUL, and
// escaping it again changes nothing. Line breaks stay where `keeps_lines` is true, which is for
// texts of our own that have several lines.
std::string Escaped(std::string_view text, bool keeps_lines = false);

// A name from outside within a message: escaped, and what is longer than kLongestShown characters
// loses its middle: "layer...(10000 bytes)...weight".
constexpr size_t kLongestShown = 200;
std::string Shown(std::string_view name);

// The name under which a tensor travels, equal on all ranks for equal names: itself up to `longest`
// bytes, else shown as above with a digest that keeps different names different. `longest` is at
// least kLongestShown.
std::string Fitted(std::string name, size_t longest);

// A size for people, always exact: "8 MiB", "64 KiB", "1500 bytes".
std::string SizeText(int64_t bytes);

// A time for people, to a tenth: "2.5 s".
std::string SecondsText(int64_t micros);

}  // namespace hvd
