#pragma once

#include <memory>
#include <string>
#include <utility>

namespace hvd {

// A text that never changes. Its copies share it: to copy one needs no memory and cannot fail, which is what
// an error needs that many operations end with when there is no memory left.
class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string text)  // NOLINT: a text is one
      : text_(text.empty() ? nullptr : std::make_shared<const std::string>(std::move(text))) {}
  SharedText(const char* text) : SharedText(std::string(text)) {}  // NOLINT

  const std::string& str() const noexcept {
    static const std::string none;
    return text_ == nullptr ? none : *text_;
  }
  bool empty() const noexcept { return text_ == nullptr; }
  bool operator==(const SharedText& other) const noexcept { return str() == other.str(); }

 private:
  std::shared_ptr<const std::string> text_;  // null: empty
};

}  // namespace hvd
