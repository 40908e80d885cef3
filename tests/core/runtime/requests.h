#pragma once

#include <string>
#include <utility>

#include "negotiate/message.h"

namespace hvd::test {

// Of one float tensor 'w'.
inline negotiate::Request RequestOf(OpKind kind, Shape shape, Shape splits = {}) {
  negotiate::Request request;
  request.kind = kind;
  request.name = "w";
  request.tensors.push_back({DataType::kFloat32, std::move(shape)});
  request.splits = std::move(splits);
  return request;
}

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace hvd::test
