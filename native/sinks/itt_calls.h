// Calls ITT without linking to it, through the pointers that another library's static copy of ITT exports. libtorch_cpu
// has them, and so has the ittapi package.
#pragma once

#include <atomic>
#include <cstddef>

#include "collectors/itt_abi.h"

namespace opspan::itt {

inline constexpr Id kNull = {0, 0, 0};
enum Relation : int { kIsDependentOn = 1 };

// ITT's function pointers. A pointer is null if no collector is attached, or if the collector does not take the call.
// (The calls that create a domain or a string work without a collector.)
struct Calls {
  template <class Function>
  using Pointer = std::atomic<Function*>;
  Pointer<Domain*(const char*)> domain_create{nullptr};
  Pointer<StringHandle*(const char*)> string_handle_create{nullptr};
  Pointer<void(const Domain*, Id, Id, StringHandle*)> task_begin{nullptr};
  Pointer<void(const Domain*)> task_end{nullptr};
  Pointer<void(const Domain*, Id, Id, StringHandle*)> task_begin_overlapped{nullptr};
  Pointer<void(const Domain*, Id)> task_end_overlapped{nullptr};
  Pointer<void(const Domain*, Id, StringHandle*, MetadataType, size_t, void*)> metadata_add{nullptr};
  Pointer<void(const Domain*, Id, StringHandle*, const char*, size_t)> metadata_str_add{nullptr};
  Pointer<void(const Domain*, Id, Relation, Id)> relation_add{nullptr};
  Pointer<void(const Domain*, Id, StringHandle*, Scope)> marker{nullptr};
  Pointer<void()> pause{nullptr};
  Pointer<void()> resume{nullptr};
};
extern Calls g_calls;

// Calls the function that a pointer of g_calls holds. Does nothing if the pointer is null.
template <class Result, class... Parameters, class... Arguments>
Result call(const std::atomic<Result (*)(Parameters...)>& pointer, Arguments... arguments) {
  Result (*function)(Parameters...) = pointer.load(std::memory_order_relaxed);
  return function ? function(arguments...) : Result();
}

// Finds ITT's pointers in `library` and makes the collector attach. Returns null, or a sentence with the reason if that
// fails.
const char* open(const char* library);
// Reads the pointers again. Returns true if a collector is attached that takes tasks.
bool refresh();
// Returns what the last refresh() returned.
bool listening();

}  // namespace opspan::itt
