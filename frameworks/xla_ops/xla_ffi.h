/* What this library uses of the typed foreign function interface of XLA (xla/ffi/api/c_api.h of
   OpenXLA, versions 0.1 and later): a handler is called with a frame of buffers and attributes, and
   calls back by a table of functions. Structures only grow at their ends, and each says how long it
   is, so members that are not used are left out behind the last one that is. TensorFlow and JAX
   both have it; no header of theirs is needed, and one build serves all of them. */
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::xla {

struct Extension {
  size_t bytes;
  int type;
  Extension* next;
};

struct Version {
  size_t bytes;
  Extension* extensions;
  int major;
  int minor;
};

enum Extensions : int { kMetadataExtension = 1 };

// Asks a handler what it was compiled for, in place of a call.
struct Metadata {
  size_t bytes;
  Version version;
  uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

// Element types, as in xla_data.proto.
enum Type : int {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBf16 = 16,
  kToken = 17,
  kF8e5m2 = 19,
  kF8e4m3fn = 20,
};

enum ErrorCode : int {
  kUnknown = 2,
  kInvalidArgument = 3,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kInternal = 13,
};

struct Buffer {
  size_t bytes;
  Extension* extensions;
  int type;
  void* data;
  int64_t dims;
  int64_t* shape;
};

enum AttributeType : int { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };

struct Span {
  const char* data;
  size_t length;
};
struct Scalar {
  int type;
  void* value;
};
struct Array {
  int type;
  size_t length;
  void* data;
};

// Of arguments and of results; both kinds have buffers alone.
struct Buffers {
  size_t bytes;
  Extension* extensions;
  int64_t count;
  int* kinds;
  void** buffers;
};

struct Attributes {
  size_t bytes;
  Extension* extensions;
  int64_t count;
  int* types;
  Span** names;
  void** values;
};

struct Error;
struct Future;
struct Api;

enum Stage : int { kExecute = 3 };

struct Frame {
  size_t bytes;
  Extension* extensions;
  const Api* api;
  void* context;
  int stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
  Future* future;  // out: completes the call later
};

using Handler = Error* (*)(Frame* frame);

struct HandlerArguments {
  size_t bytes;
  Extension* extensions;
  Span name;
  Span platform;
  Handler instantiate;
  Handler prepare;
  Handler initialize;
  Handler execute;
  uint32_t traits;
};

struct ErrorArguments {
  size_t bytes;
  Extension* extensions;
  const char* message;
  int code;
};
struct FutureArguments {
  size_t bytes;
  Extension* extensions;
  Future* future;
};
struct FutureErrorArguments {
  size_t bytes;
  Extension* extensions;
  Future* future;
  Error* error;  // XLA's from then on
};
struct StreamArguments {
  size_t bytes;
  Extension* extensions;
  void* context;  // of the frame
  void* stream;   // out
};

struct Api {
  size_t bytes;
  Extension* extensions;
  Version version;
  const void* internal;

  Error* (*create_error)(ErrorArguments* arguments);
  void* error_message;
  void* destroy_error;
  Error* (*register_handler)(HandlerArguments* arguments);
  Error* (*stream)(StreamArguments* arguments);
  void* register_type;
  void* execution_context;
  void* set_state;
  void* state;
  void* allocate;
  void* free;
  void* schedule;
  void* threads;
  Error* (*create_future)(FutureArguments* arguments);
  Error* (*complete)(FutureArguments* arguments);
  Error* (*fail)(FutureErrorArguments* arguments);
};

}  // namespace hvd::xla
