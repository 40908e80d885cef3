#pragma once

// The functions of the CUDA driver that the fake has. Every handle is opaque, every result a
// CUresult.

#include <cstddef>

#include "fake_gpu.h"

namespace fake_gpu {

enum CudaResult {
  kCudaOk = 0,
  kCudaInvalidValue = 1,
  kCudaOutOfMemory = 2,
  kCudaNoDevice = 100,
  kCudaInvalidDevice = 101,
  kCudaInvalidContext = 201,
  kCudaInvalidHandle = 400,
  kCudaNotReady = 600,
  kCudaIllegalAddress = 700,
  kCudaCaptureIsolation = 905,
};

constexpr int kMajorCapability = 75;  // the one attribute

}  // namespace fake_gpu

extern "C" {

using CudaAddress = unsigned long long;

int cuInit(unsigned flags);
int cuDriverGetVersion(int* version);
int cuGetErrorString(int result, const char** text);

int cuDeviceGetCount(int* count);
int cuDeviceGet(int* device, int ordinal);
int cuDeviceGetAttribute(int* value, int attribute, int device);
int cuDeviceGetName(char* name, int bytes, int device);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(void* context);
int cuCtxPopCurrent_v2(void** context);
int cuCtxGetCurrent(void** context);

int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority);
int cuStreamDestroy_v2(void* stream);
int cuStreamWaitEvent(void* stream, void* event, unsigned flags);
int cuStreamQuery(void* stream);
int cuStreamSynchronize(void* stream);
// `function` runs on the thread of the stream: a kernel of a test.
int cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument);
int cuStreamIsCapturing(void* stream, int* status);
int cuThreadExchangeStreamCaptureMode(int* mode);

int cuEventCreate(void** event, unsigned flags);
int cuEventDestroy_v2(void* event);
int cuEventRecord(void* event, void* stream);
int cuEventQuery(void* event);
int cuEventSynchronize(void* event);

int cuMemAlloc_v2(CudaAddress* address, size_t bytes);
int cuMemFree_v2(CudaAddress address);
int cuMemAllocAsync(CudaAddress* address, size_t bytes, void* stream);
int cuMemFreeAsync(CudaAddress address, void* stream);
int cuMemcpyDtoDAsync_v2(CudaAddress to, CudaAddress from, size_t bytes, void* stream);
int cuMemcpyPeerAsync(CudaAddress to, void* to_context, CudaAddress from, void* from_context,
                      size_t bytes, void* stream);
int cuMemcpyHtoDAsync_v2(CudaAddress to, const void* from, size_t bytes, void* stream);
int cuMemcpyDtoHAsync_v2(void* to, CudaAddress from, size_t bytes, void* stream);
int cuMemsetD8Async(CudaAddress to, unsigned char value, size_t bytes, void* stream);

}  // extern "C"
