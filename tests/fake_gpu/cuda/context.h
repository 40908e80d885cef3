#pragma once

namespace fake_gpu {

// The device of this thread's current context, or -1.
int CurrentDevice();

// The device of a context, or -1.
int DeviceOf(void* context);

// For a call that needs a current context: kCudaOk and the device, or the result of the call.
int NeedDevice(int* device);

// Work on this device broke a rule: every later call on it returns `code`, as with a real GPU.
void Break(int device, int code);
void MendAll();

}  // namespace fake_gpu
