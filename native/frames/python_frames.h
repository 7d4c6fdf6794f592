// The frames of a thread, innermost first, as each release of CPython keeps them. Only this file depends on the
// release; src/opspan/emit/python_frames.py says for which releases it is compiled.
//
// From 3.11 on frames are in internal headers. This is compiled on the user's machine, with the headers of the Python
// that will load it, so the compiler knows where each field is. Python's own tracebacks are made with the functions of
// those headers, so tracebacks and this code show the same frames. 3.13 also has a table of offsets (_Py_DebugOffsets),
// for debuggers that have no headers. It is not used: it is declared in an internal header too, and does not say which
// frames to leave out.
#pragma once

#include <Python.h>

#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h>
#else
#define Py_BUILD_CORE
#if PY_VERSION_HEX < 0x030e0000
#include <internal/pycore_frame.h>
#else
#include <internal/pycore_interpframe.h>
#endif
#undef Py_BUILD_CORE
#endif

namespace opspan::python {

#if PY_VERSION_HEX < 0x030b0000
using Frame = PyFrameObject;

inline Frame* innermost(const PyThreadState* thread) { return thread->frame; }
inline Frame* caller(const Frame* frame) { return frame->f_back; }
inline bool is_function(Frame*) { return true; }
inline PyCodeObject* code_of(const Frame* frame) { return frame->f_code; }
inline int instruction_of(const Frame* frame) { return frame->f_lasti; }
#else
using Frame = _PyInterpreterFrame;

inline Frame* innermost(const PyThreadState* thread) {
#if PY_VERSION_HEX < 0x030d0000
  return thread->cframe->current_frame;
#else
  return thread->current_frame;
#endif
}

inline Frame* caller(const Frame* frame) { return frame->previous; }

// Returns false for the frames that the interpreter puts between C and Python (since 3.12) and around an __init__
// (since 3.13), and for a function that has not begun.
inline bool is_function(Frame* frame) { return !_PyFrame_IsIncomplete(frame); }

// Returns the code of a function; other frames need not have any.
inline PyCodeObject* code_of(Frame* frame) {
#if PY_VERSION_HEX < 0x030d0000
  return frame->f_code;
#else
  return _PyFrame_GetCode(frame);
#endif
}

inline int instruction_of(Frame* frame) { return _PyInterpreterFrame_LASTI(frame); }
#endif

// Returns the position of a frame in its code, in bytes. PyCode_Addr2Line takes this number.
inline int offset_of(Frame* frame) { return instruction_of(frame) * static_cast<int>(sizeof(_Py_CODEUNIT)); }

}  // namespace opspan::python
