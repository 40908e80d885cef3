#pragma once

#include "api/c_api.h"

namespace hvd::api {

// The table of this process, with a reference that the caller releases. It works on whatever engine there is.
hvd_api* AcquireTable();

}  // namespace hvd::api
