// The names of the functions that Python calls. All of this runs under the GIL.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "capture/writer.h"
#include "sinks/python_api.h"
#include "sinks/python_calls.h"

namespace opspan::python {

// A function of Python.
struct Function {
  enum Kind : uint8_t { kUsual, kOurs, kOfLibrary, kModuleCall, kRangeEdge };

  Function(std::string text, Kind its_kind) : name(std::move(text)), kind(its_kind) {}
  capture::Constant name;  // such as `train.py(12): forward`
  // kOurs: of opspan; kOfLibrary: of Python's own library; kModuleCall: nn.Module.__call__; kRangeEdge: __enter__ or
  // __exit__ of record_function
  const Kind kind;
};

void describe_program(const opspan_python& python);
// Returns the function that a frame runs. It is valid until forget_names().
Function& function_of(Frame* frame);
// Returns a name such as `nn.Module: Linear_0`, for the frame of a kModuleCall. Returns null if its module has no name.
capture::Constant* module_name(Frame* frame);
// Returns a name such as `<built-in function len>`.
capture::Constant& name_of_c_function(const Object* c_function);
// Drops all names, and the references to code objects, which keep the objects' addresses unique.
void forget_names();

}  // namespace opspan::python
