// The functions that record calls of Python functions into a capture. Python calls them with ctypes, under the GIL
// (src/opspan/emit/python_calls.py).
#pragma once

#include "sinks/sinks.h"

extern "C" {

typedef struct opspan_python {
  void* hook;         // sys.getprofile() returns it: a Python function that calls opspan_python_join
  void* get_profile;  // sys.getprofile
  void* none;         // None
  void* module_code;  // the code of nn.Module.__call__, or null
  // The code objects of record_function's __enter__ and __exit__, or null. Their calls are left out, and so are all
  // calls in them. Otherwise a range, which begins in __enter__ and ends in __exit__, would partly overlap these calls.
  void* enter_code;
  void* exit_code;
  // `folders` have opspan's own functions, and `library` is the folder of Python's standard library. Each ends with a
  // slash. Calls of opspan's functions are left out, and so are the calls that these functions make in the library.
  const char* const* folders;
  size_t folder_count;
  const char* library;
} opspan_python;
// Takes the profile slots of all threads, and records their calls. Returns 0, or -errno (ENOTSUP: there is no Python).
OPSPAN_EXPORT int opspan_python_start(int sink, const opspan_python* python);
// Takes the profile slot of this thread too, or frees it if no capture records calls.
OPSPAN_EXPORT void opspan_python_join(void* hook);
// Stops recording calls into this sink. Returns 1 if other captures still record calls, else 0. After 0, the caller
// frees this thread's slot. Other threads free their slots at their next call.
OPSPAN_EXPORT int opspan_python_stop(int sink);

}  // extern "C"
