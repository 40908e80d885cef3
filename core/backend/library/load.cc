#include <dlfcn.h>

#include <cstring>

#include "backend/library/library.h"
#include "collective/kernels/kernels.h"

namespace hvd {

namespace {

void Combine(DataType dtype, ReduceOp op, const void* left, const void* right, void* result,
             int64_t elements) {
  const void* sources[] = {left, right};
  kernels::Reduce({dtype, op, 1.0, 1.0, 1}, sources, 2, &result, 1, elements);
}

}  // namespace

// A module stays loaded: a call that was left behind may still run in it.
Status LoadLibrary(const std::string& path, LibraryOptions options,
                   std::unique_ptr<Library>* library) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return {Code::kUnavailable,
            std::string("cannot load the library of collectives: ") + dlerror()};
  }
  const auto* const module = static_cast<const LibraryModule*>(dlsym(handle, "hvd_library_module"));
  if (module == nullptr || std::strcmp(module->stamp, HVD_LIBRARY_STAMP) != 0) {
    return {Code::kUnavailable, path +
                                    " was not built with this version of horovod: build and "
                                    "install it again"};
  }
  options.combine = &Combine;
  library->reset(module->make(options));
  return Status::Ok();
}

}  // namespace hvd
