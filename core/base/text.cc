#include "base/text.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "digest/sha256.h"

namespace hvd {

namespace {

constexpr char kDigits[] = "0123456789abcdef";
constexpr size_t kDigestBytes = 8;

struct Range {
  uint32_t first;
  uint32_t last;
};

// Control and format characters, line and paragraph separators, and noncharacters (Unicode's
// categories Cc, Cf, Zl, Zp and in part Cn), in ascending order. They show nothing, or change how
// what follows is shown.
constexpr Range kHidden[] = {
    {0x00, 0x1F},       {0x7F, 0x9F},       {0xAD, 0xAD},       {0x600, 0x605},
    {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},
    {0x8E2, 0x8E2},     {0x180E, 0x180E},   {0x200B, 0x200F},   {0x2028, 0x202E},
    {0x2060, 0x206F},   {0xFDD0, 0xFDEF},   {0xFEFF, 0xFEFF},   {0xFFF0, 0xFFFB},
    {0xFFFE, 0xFFFF},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x1343F},
    {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}, {0xF0000, 0x10FFFF}};

bool IsHidden(uint32_t value) {
  const Range* range = std::lower_bound(std::begin(kHidden), std::end(kHidden), value,
                                        [](const Range& r, uint32_t v) { return r.last < v; });
  return range != std::end(kHidden) && range->first <= value;
}

void AppendDigits(uint32_t value, int count, std::string* text) {
  for (int shift = 4 * (count - 1); shift >= 0; shift -= 4) *text += kDigits[value >> shift & 0xF];
}

void AppendEscape(uint32_t value, std::string* text) {
  if (value == '\n' || value == '\r' || value == '\t') {
    *text += value == '\n' ? "\\n" : value == '\r' ? "\\r" : "\\t";
    return;
  }
  const int digits = value < 0x100 ? 2 : value < 0x10000 ? 4 : 8;
  *text += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  AppendDigits(value, digits, text);
}

std::string Hex(const Digest& digest) {
  std::string text;
  for (size_t i = 0; i < kDigestBytes; ++i) AppendDigits(digest[i], 2, &text);
  return text;
}

// Where the characters of an escaped text begin, and its end.
std::vector<size_t> Borders(std::string_view text) {
  std::vector<size_t> borders{0};
  for (size_t at = 0; at < text.size(); borders.push_back(at))
    at += FirstCodePoint(text.substr(at)).bytes;
  return borders;
}

// Both ends of `name`, escaped, with `note` in between, in kLongestShown characters. Only the ends
// are escaped, so that the length of the name costs nothing.
std::string WithoutMiddle(std::string_view name, const std::string& note) {
  const size_t side = (kLongestShown - note.size()) / 2;
  // A character is at most 4 bytes.
  const size_t read = std::min(name.size(), 4 * side);
  std::string head = Escaped(name.substr(0, read));
  std::string tail = Escaped(name.substr(name.size() - read));
  const std::vector<size_t> head_borders = Borders(head);
  const std::vector<size_t> tail_borders = Borders(tail);
  const size_t first = tail_borders.size() - 1 - std::min(side, tail_borders.size() - 1);
  return head.substr(0, head_borders[std::min(side, head_borders.size() - 1)]) + note +
         tail.substr(tail_borders[first]);
}

std::string LengthNote(size_t bytes, const std::string& more) {
  return "...(" + std::to_string(bytes) + " bytes" + more + ")...";
}

}  // namespace

CodePoint FirstCodePoint(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1, true};
  const CodePoint invalid{lead, 1, false};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return invalid;
  uint32_t value = lead & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return invalid;
    value = value << 6 | (next & 0x3Fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value < 0xE000;
  if (value < kSmallest[bytes] || value > 0x10FFFF || surrogate) return invalid;
  return {value, bytes, true};
}

std::string Escaped(std::string_view text, bool keeps_lines) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = FirstCodePoint(text);
    const bool line_break = keeps_lines && point.value == '\n';
    if (!line_break && (!point.valid || IsHidden(point.value))) {
      AppendEscape(point.value, &escaped);
    } else {
      escaped.append(text.substr(0, point.bytes));
    }
    text.remove_prefix(point.bytes);
  }
  return escaped;
}

std::string Shown(std::string_view name) {
  if (name.size() <= kLongestShown * 4) {  // it may fit: a character is at most 4 bytes
    std::string escaped = Escaped(name);
    if (Borders(escaped).size() - 1 <= kLongestShown) return escaped;
  }
  return WithoutMiddle(name, LengthNote(name.size(), ""));
}

std::string Fitted(std::string name, size_t longest) {
  if (name.size() <= longest) return name;
  Sha256 sha;
  sha.Update(name.data(), name.size());
  return WithoutMiddle(name, LengthNote(name.size(), ", sha256 " + Hex(sha.Finish())));
}

std::string SizeText(int64_t bytes) {
  int64_t number = bytes;
  size_t unit = 0;
  constexpr const char* kUnits[] = {" bytes", " KiB", " MiB", " GiB"};
  for (; number != 0 && number % 1024 == 0 && unit + 1 < std::size(kUnits); ++unit) number /= 1024;
  return std::to_string(number) + kUnits[unit];
}

std::string SecondsText(int64_t micros) {
  return std::to_string(micros / 1'000'000) + "." + std::to_string(micros % 1'000'000 / 100'000) +
         " s";
}

}  // namespace hvd
