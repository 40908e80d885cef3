// What a frame says, in the words of the core.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/c_api.h"
#include "xla_ops/xla_ffi.h"

namespace hvd::xla {

// The attributes of a call, which the compiled program has as constants.
struct Options {
  int64_t kind = 0;
  int64_t reduce_op = 0;
  int64_t root = 0;
  int64_t process_set = 0;
  int64_t ordered = 0;  // 1: the first buffers only keep the calls of a program in order
  int64_t part = 0;     // of a step: which one it is,
  int64_t parts = 0;    // of how many
  double prescale = 1;
  double postscale = 1;
  std::string name;  // empty: unnamed
  std::vector<int64_t> splits;
};

Options OptionsOf(const Attributes& attributes);

// Without the tokens by which XLA keeps operations in order.
std::vector<const Buffer*> BuffersOf(const Buffers& buffers);

int64_t BytesOf(const Buffer& buffer);
int32_t CoreType(const Buffer& buffer);  // -1: unknown to the core

}  // namespace hvd::xla
