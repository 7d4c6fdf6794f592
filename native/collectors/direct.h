// The calls by which opspan's sinks pass ops to opspan's own collector, if that collector is the tool. NVTX or ITT need
// several calls for an op; here, one call passes everything. So the collector needs one unit for an op, and does not
// look up texts that the sink has looked up already.
#pragma once

#include <cstdint>

namespace opspan::direct {

inline constexpr int kVersion = 2;  // the sinks and the collector may come from different versions of opspan

struct Op {
  const char* name;       // a text that ends with NUL
  uint32_t kind;          // capture::Kind
  uint32_t forward_tid;   // 0: not a backward op, or not known
  uint32_t sizes_length;  // 0: the op has no sizes, or sizes_handle is used
  const char* sizes;
  const void* sizes_handle;  // the handle that keep() returned for the text of the sizes; null: none
  int64_t sequence;          // -1: none
  uint64_t id;               // 0: none
  uint64_t parent;           // for ITT: the parent's number, with kUsersParent for a user's range; 0: none
};

// `thread` is the pointer that thread() returned on the calling thread. It is valid as long as that thread lives.
struct Calls {
  void* (*thread)();
  void (*begin)(void* thread, const Op& op);
  void (*end)(void* thread);
  // Returns a handle for a text that is used many times. Handles of strings that are registered with NVTX are valid
  // here too.
  const void* (*keep)(const char* text);
};

enum Protocol : int { kNvtx, kItt };

// The collectors' library exports a function of this type with the name kGetCalls. The function returns null if the
// library has another version, or collects nothing.
using GetCalls = const Calls* (*)(int version, int protocol);
inline constexpr char kGetCalls[] = "opspan_collector_takes_ops";

}  // namespace opspan::direct
