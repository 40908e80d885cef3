// The names of eager operations on their way from Python to a kernel.
//
// TensorFlow keeps a kernel for each combination of attributes that it has met, for ever: with the
// name as an attribute, a program that makes up new names would fill the memory. So the attribute
// is the number of a place where the name lies, which is free again once a kernel has taken it.
#pragma once

#include <cstdint>
#include <string>

namespace hvd::tensorflow {

// Of an attribute `tensor_name`: the number of a place; -1 for anything else.
int64_t PlaceIn(const std::string& tensor_name);

// The name that lies there, which it does no more.
std::string TakeName(int64_t place);

}  // namespace hvd::tensorflow

extern "C" {

// Puts a name of so many bytes into the first free place. Returns its number; -1: no memory. The
// place of an operation that TensorFlow refuses before its kernel starts is lost.
__attribute__((visibility("default"))) int64_t horovod_tensorflow_put_name(const char* name,
                                                                           int64_t bytes);
}
