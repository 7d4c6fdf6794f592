// The functions that record calls of Python functions into a capture. Python calls them with ctypes, under the GIL
// (src/opspan/emit/python_calls.py).
#pragma once

#include "sinks/sinks.h"

extern "C" {

typedef struct opspan_python {
  void* hook;         // what sys.getprofile() returns meanwhile: a Python function that calls opspan_python_join
  void* get_profile;  // sys.getprofile
  void* none;         // None
  void* module_code;  // the code of nn.Module.__call__, or null
  // The codes of record_function's __enter__ and __exit__, or null. Their calls are left out, and so are all calls in
  // them: a range begins in the one and ends in the other, so it would overlap the calls.
  void* enter_code;
  void* exit_code;
  // Folders with opspan's own functions, and that of Python's own library, each with a slash at its end. Calls of
  // opspan's functions are left out, and so is what these call in the library.
  const char* const* folders;
  size_t folder_count;
  const char* library;
} opspan_python;
// Takes the profile slots of all threads, and records their calls. Returns 0, or -errno (ENOTSUP: there is no Python).
OPSPAN_EXPORT int opspan_python_start(int sink, const opspan_python* python);
// Takes the profile slot of this thread too, or frees it if no capture records calls.
OPSPAN_EXPORT void opspan_python_join(void* hook);
// Returns 1 if other captures still record calls. Else the caller frees this thread's slot; other threads free theirs.
OPSPAN_EXPORT int opspan_python_stop(int sink);

}  // extern "C"
