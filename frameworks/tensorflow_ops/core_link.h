// How the operations reach the engine: the core's C table, which Python hands over after loading this
// library.
#pragma once

#include "api/c_api.h"

namespace hvd::tensorflow {

// Null before Python has handed over a table.
hvd_api* Core();

}  // namespace hvd::tensorflow

extern "C" {

// Takes over the caller's reference. 0, or the version that this library needs.
__attribute__((visibility("default"))) int horovod_tensorflow_bind(hvd_api* api);
}
