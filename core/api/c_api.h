/* What native code of a framework sees of the core: one table of functions, in C, so that a library
   compiled once works with every later core that still offers this version. Numbers of kinds,
   types, reductions and codes are those of base/types.h and base/status.h, which only ever grow. */
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

#define HVD_API_VERSION 2

typedef struct hvd_tensor {
  const void* input;
  int64_t input_bytes; /* this and output_bytes must be what dtype and shape take */
  void*
      output; /* null: the core allocates, as it must for an allgather, alltoall or reducescatter */
  int64_t output_bytes;
  int32_t dtype;
  int32_t dims;
  const int64_t* shape;
} hvd_tensor;

/* Everything here is copied by `submit`, except the memory of the tensors, which must live until
   the operation is complete. */
typedef struct hvd_operation {
  int32_t kind;
  int32_t reduce_op;
  double prescale;
  double postscale;
  int32_t root; /* global rank */
  uint32_t process_set;
  const char* name; /* null: unnamed, counted per process set */
  const int64_t* splits;
  int32_t split_count;
  int32_t tensor_count;
  const hvd_tensor* tensors;
  int32_t urgent; /* the program waits for nothing else: do not wait for others to travel with */
  int32_t
      awaited; /* the submitting thread waits until `done`: it can do nothing about a deadlock */
  int32_t
      priority; /* of named operations that are submitted about together, the highest goes first */
} hvd_operation;

/* Memory that the core has allocated. */
typedef struct hvd_output {
  void* data; /* aligned to 64 bytes; null where the caller gave an output */
  int64_t bytes;
  int32_t dtype;
  int32_t dims;
  const int64_t* shape;
  const void* owner;
} hvd_output;

/* Valid during the callback only. */
typedef struct hvd_result {
  int32_t code;        /* 0: success */
  const char* message; /* of an error, for people */
  int32_t output_count;
  const hvd_output* outputs; /* by tensor; see runtime/operation/handle.h for what follows them */
} hvd_result;

typedef void (*hvd_done)(void* context, const hvd_result* result);

typedef struct hvd_topology {
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
} hvd_topology;

typedef struct hvd_api hvd_api;
struct hvd_api {
  uint32_t version; /* HVD_API_VERSION of the core */
  uint32_t bytes;   /* sizeof(hvd_api) there; later versions append */

  /* The table lives as long as somebody holds a reference; whoever is handed it takes one. */
  void (*retain)(hvd_api* api);
  void (*release)(hvd_api* api);

  /* Starts an operation. `done` is called exactly once, from any thread, perhaps before `submit`
     returns: with an error when nothing could be started (before init, after shutdown). It holds no
     lock of the core's and may submit. A join is one for all process sets of this rank. */
  void (*submit)(hvd_api* api, const hvd_operation* operation, hvd_done done, void* context);

  /* Shares the memory of an output beyond the callback; `drop` gives the share back. Null: no
   * memory for it.
   */
  void* (*keep)(const hvd_output* output);
  void (*drop)(void* share);

  /* 0, or the code that says why there is none: there is no engine. */
  int32_t (*topology)(hvd_api* api, hvd_topology* topology);

  /* How many ranks a process set has, and this rank's place among them (-1: none). 0, or a code:
     there is no such set, or no engine. */
  int32_t (*process_set)(hvd_api* api, uint32_t id, int32_t* size, int32_t* rank);
};

}  // extern "C"
