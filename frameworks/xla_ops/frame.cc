#include "xla_ops/frame.h"

#include <string_view>
#include <type_traits>

#include "base/types.h"

namespace hvd::xla {

namespace {

constexpr int kByCoreType[kDataTypes] = {
    kU8,  kS8,   kU16,  kS16, kS32, kS64,      kF16,    kF32,
    kF64, kPred, kBf16, kU32, kU64, kF8e4m3fn, kF8e5m2,
};

template <typename T>
void Read(const Attributes& attributes, int64_t at, AttributeType type, T* value) {
  if (attributes.types[at] != type) return;
  const void* given = attributes.values[at];
  if constexpr (std::is_same_v<T, std::string>) {
    const auto* text = static_cast<const Span*>(given);
    value->assign(text->data, text->length);
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    const auto* array = static_cast<const Array*>(given);
    const auto* first = static_cast<const int64_t*>(array->data);
    if (array->type == kS64) value->assign(first, first + array->length);
  } else {
    const auto* scalar = static_cast<const Scalar*>(given);
    if (scalar->type == (std::is_same_v<T, double> ? kF64 : kS64))
      *value = *static_cast<const T*>(scalar->value);
  }
}

}  // namespace

Options OptionsOf(const Attributes& attributes) {
  Options options;
  for (int64_t i = 0; i < attributes.count; ++i) {
    const std::string_view name(attributes.names[i]->data, attributes.names[i]->length);
    if (name == "kind") Read(attributes, i, kScalar, &options.kind);
    if (name == "reduce_op") Read(attributes, i, kScalar, &options.reduce_op);
    if (name == "root") Read(attributes, i, kScalar, &options.root);
    if (name == "process_set") Read(attributes, i, kScalar, &options.process_set);
    if (name == "part") Read(attributes, i, kScalar, &options.part);
    if (name == "parts") Read(attributes, i, kScalar, &options.parts);
    if (name == "ordered") Read(attributes, i, kScalar, &options.ordered);
    if (name == "prescale") Read(attributes, i, kScalar, &options.prescale);
    if (name == "postscale") Read(attributes, i, kScalar, &options.postscale);
    if (name == "name") Read(attributes, i, kString, &options.name);
    if (name == "splits") Read(attributes, i, kArray, &options.splits);
  }
  return options;
}

std::vector<const Buffer*> BuffersOf(const Buffers& buffers) {
  std::vector<const Buffer*> found;
  for (int64_t i = 0; i < buffers.count; ++i) {
    const auto* buffer = static_cast<const Buffer*>(buffers.buffers[i]);
    if (buffer->type != kToken) found.push_back(buffer);
  }
  return found;
}

int64_t BytesOf(const Buffer& buffer) {
  const int32_t type = CoreType(buffer);
  auto bytes = type < 0 ? 0 : static_cast<int64_t>(SizeOf(static_cast<DataType>(type)));
  for (int64_t d = 0; d < buffer.dims; ++d) bytes *= buffer.shape[d];
  return bytes;
}

int32_t CoreType(const Buffer& buffer) {
  for (int32_t i = 0; i < kDataTypes; ++i) {
    if (kByCoreType[i] == buffer.type) return i;
  }
  return -1;
}

}  // namespace hvd::xla
