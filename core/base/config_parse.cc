#include "base/config_parse.h"

#include <cctype>
#include <charconv>
#include <climits>
#include <cmath>
#include <sstream>

namespace hvd {

bool ParseInteger(const std::string& text, int64_t lowest, int64_t highest, int64_t* value) {
  int64_t parsed;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, parsed);
  if (error != std::errc() || stop != end || parsed < lowest || parsed > highest) return false;
  *value = parsed;
  return true;
}

// A stream in the classic locale and not strtod: a program may have set a locale with a decimal comma.
bool ParseNumber(const std::string& text, double lowest, double highest, double* value) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  double parsed;
  if (!(stream >> std::noskipws >> parsed) || stream.peek() != EOF) return false;
  if (!(parsed >= lowest && parsed <= highest)) return false;
  *value = parsed;
  return true;
}

bool ParseFlag(const std::string& text, bool* value) {
  std::string lower;
  for (unsigned char c : text) lower += static_cast<char>(std::tolower(c));
  const bool yes = lower == "1" || lower == "true" || lower == "yes" || lower == "on";
  const bool no = lower == "0" || lower == "false" || lower == "no" || lower == "off";
  if (yes || no) *value = yes;
  return yes || no;
}

bool ParseList(const std::string& text, std::vector<int>* values) {
  std::vector<int> parsed;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    int64_t value;
    if (!ParseInteger(text.substr(start, end - start), 0, INT_MAX, &value)) return false;
    parsed.push_back(static_cast<int>(value));
    start = end + 1;
  }
  *values = std::move(parsed);
  return true;
}

}  // namespace hvd
