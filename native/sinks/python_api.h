// The functions of CPython that python_calls.cpp needs. They are looked up when this library is loaded, so that one
// library serves every Python. In a program without Python they are null. CPython 3.10 to 3.14 have all of them, except
// that PyEval_SetProfileAllThreads is new in 3.12.
#pragma once

struct _object;  // PyObject
struct _frame;   // PyFrameObject
struct _ts;      // PyThreadState
struct _is;      // PyInterpreterState

namespace opspan::python {

using Object = _object;
using Frame = _frame;

// The events that Python calls a profile function for.
enum What { kCall = 0, kReturn = 3, kCallC = 4, kExceptionInC = 5, kReturnFromC = 6 };
using ProfileFunction = int (*)(Object* self, Frame* frame, int what, Object* argument);

}  // namespace opspan::python

extern "C" {
#define OPSPAN_PYTHON __attribute__((weak, visibility("default")))
OPSPAN_PYTHON void PyEval_SetProfile(opspan::python::ProfileFunction, _object*);
OPSPAN_PYTHON _frame* PyFrame_GetBack(_frame*);      // a new reference
OPSPAN_PYTHON _object* PyFrame_GetCode(_frame*);     // a new reference
OPSPAN_PYTHON _frame* PyThreadState_GetFrame(_ts*);  // a new reference
OPSPAN_PYTHON _ts* PyThreadState_Get();
OPSPAN_PYTHON void Py_IncRef(_object*);
OPSPAN_PYTHON void Py_DecRef(_object*);
OPSPAN_PYTHON void PyErr_Clear();
OPSPAN_PYTHON _object* PyObject_GetAttrString(_object*, const char*);
OPSPAN_PYTHON _object* PyObject_CallObject(_object*, _object*);
OPSPAN_PYTHON _object* PyMapping_GetItemString(_object*, const char*);
OPSPAN_PYTHON const char* PyUnicode_AsUTF8AndSize(_object*, long*);
OPSPAN_PYTHON long PyLong_AsLong(_object*);
OPSPAN_PYTHON _object* PyCFunction_GetSelf(_object*);  // a borrowed reference
OPSPAN_PYTHON _object* PyWeakref_NewRef(_object*, _object*);
OPSPAN_PYTHON _object* PyWeakref_GetObject(_object*);  // a borrowed reference

// since 3.12
OPSPAN_PYTHON void PyEval_SetProfileAllThreads(opspan::python::ProfileFunction, _object*);

// Used only before 3.12. Later releases have them, too, but their PyThreadState_Swap lets other threads run.
OPSPAN_PYTHON _is* PyInterpreterState_Get();
OPSPAN_PYTHON _ts* PyInterpreterState_ThreadHead(_is*);
OPSPAN_PYTHON _ts* PyThreadState_Next(_ts*);
OPSPAN_PYTHON _ts* PyThreadState_Swap(_ts*);
#undef OPSPAN_PYTHON
}

namespace opspan::python {

// The beginnings of some of Python's structs. They are the same in every release with a GIL.
struct ObjectHead {
  long references;
  const struct TypeHead* type;
};
struct TypeHead : ObjectHead {
  long size;
  const char* name;  // begins with the module's name, unless the type was defined in Python
};
struct CFunctionHead : ObjectHead {
  const struct {
    const char* name;
  }* definition;
};

inline const TypeHead* type_of(const Object* object) { return reinterpret_cast<const ObjectHead*>(object)->type; }

// A reference to an object. The destructor drops the reference, and needs the GIL.
class Reference {
 public:
  explicit Reference(Object* object) : object_(object) {}
  explicit Reference(Frame* frame) : object_(reinterpret_cast<Object*>(frame)) {}
  Reference(Reference&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Reference& operator=(Reference&&) = delete;
  ~Reference() {
    if (object_) Py_DecRef(object_);
  }
  Object* get() const { return object_; }
  Frame* frame() const { return reinterpret_cast<Frame*>(object_); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  Object* object_;
};

}  // namespace opspan::python
