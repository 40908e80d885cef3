#include "runtime/operation/handle.h"

#include <cstdlib>

#include "runtime/operation/sample.h"

namespace hvd {

namespace {
constexpr size_t kAlignment = 64;
}  // namespace

Status Output::Allocate(DataType dtype, Shape shape, Output* output) {
  const int64_t bytes = negotiate::BytesOf({dtype, shape});
  if (bytes < 0) return {Code::kUnavailable, "a result of shape " + ToString(shape) + " does not fit memory"};
  const size_t rounded = (static_cast<size_t>(bytes) / kAlignment + 1) * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) {
    return {Code::kUnavailable, "no memory for a result of shape " + ToString(shape) + " of " + Name(dtype) +
                                    " (" + std::to_string(bytes) + " bytes)"};
  }
  output->dtype = dtype;
  output->shape = std::move(shape);
  output->data = std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), std::free);
  output->bytes = bytes;
  return Status::Ok();
}

std::string Handle::name() const {
  if (entry.request.kind == OpKind::kJoin) return Name(OpKind::kJoin);
  if (ordinal == 0) return entry.request.name;
  return std::string(Name(entry.request.kind)) + ".noname." + std::to_string(ordinal);
}

bool Handle::Changed() const {
  return entry.sampled && done.load(std::memory_order_acquire) && status.ok() && Sample(entry) != sample;
}

}  // namespace hvd
