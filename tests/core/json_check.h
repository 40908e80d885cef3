#pragma once

// Whether a text is JSON (RFC 8259); nothing is kept of it.

#include <cctype>
#include <string_view>

namespace hvd::check {

class JsonCheck {
 public:
  explicit JsonCheck(std::string_view text) : rest_(text) {}
  bool Whole() { return Value() && (Blanks(), rest_.empty()); }

 private:
  void Blanks() {
    while (!rest_.empty() && std::string_view(" \n\r\t").find(rest_[0]) != std::string_view::npos) {
      rest_.remove_prefix(1);
    }
  }
  bool Take(std::string_view word) {
    Blanks();
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool Value() {
    if (Take("{")) return Members("}", true);
    if (Take("[")) return Members("]", false);
    if (Take("\"")) return String();
    return Take("true") || Take("false") || Take("null") || Number();
  }
  bool Members(std::string_view end, bool named) {
    if (Take(end)) return true;
    do {
      if (named && !(Take("\"") && String() && Take(":"))) return false;
      if (!Value()) return false;
    } while (Take(","));
    return Take(end);
  }
  bool String() {
    for (; !rest_.empty(); rest_.remove_prefix(1)) {
      const auto c = static_cast<unsigned char>(rest_[0]);
      if (c == '"') return rest_.remove_prefix(1), true;
      if (c < 0x20) return false;
      if (c == '\\' && !Escape()) return false;
    }
    return false;
  }
  // Leaves the last character of the escape in front.
  bool Escape() {
    rest_.remove_prefix(1);
    if (rest_.empty() || std::string_view("\"\\/bfnrtu").find(rest_[0]) == std::string_view::npos)
      return false;
    if (rest_[0] != 'u') return true;
    if (rest_.size() < 5) return false;
    rest_.remove_prefix(1);
    for (int digit = 0; digit < 4; ++digit) {
      if (std::isxdigit(static_cast<unsigned char>(rest_[digit])) == 0) return false;
    }
    rest_.remove_prefix(3);
    return true;
  }
  bool Number() {
    size_t length = 0;
    while (length < rest_.size() &&
           std::string_view("+-.eE0123456789").find(rest_[length]) != std::string_view::npos) {
      ++length;
    }
    rest_.remove_prefix(length);
    return length > 0;
  }

  std::string_view rest_;
};

}  // namespace hvd::check
