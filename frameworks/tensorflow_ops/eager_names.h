// The names of eager operations on their way from Python to a kernel.
//
// TensorFlow keeps a kernel for each combination of attributes that it has met, for ever: with the
// name as an attribute, a program that makes up new names would fill the memory. So the attribute
// is the number of a place where the name lies, which is free again once a kernel has taken it, or
// Python, where TensorFlow has refused the operation before its kernel started.
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

// Puts a name of so many bytes into the first free place. Returns a number of this one use of it,
// whose lower 32 bits are the place; -1: no memory.
__attribute__((visibility("default"))) int64_t horovod_tensorflow_put_name(const char* name,
                                                                           int64_t bytes);

// Frees the place unless it has been since: another name may lie there by now.
__attribute__((visibility("default"))) void horovod_tensorflow_take_back_name(int64_t use);
}
