// The calls by which opspan's sinks pass ops to opspan's own collector, if that collector is the tool. One call passes
// all that is known about an op, where NVTX or ITT need several. So the collector needs one unit for an op, and does
// not look up texts that the sink has looked up already.
#pragma once

#include <cstdint>

namespace opspan::direct {

inline constexpr int kVersion = 2;  // the two libraries may come from different versions of opspan

struct Op {
  const char* name;       // a text that ends with NUL
  uint32_t kind;          // capture::Kind
  uint32_t forward_tid;   // 0: not a backward op, or not known
  uint32_t sizes_length;  // 0: there are none, or sizes_handle is used
  const char* sizes;
  const void* sizes_handle;  // the handle that keep() returned for the sizes; null: none
  int64_t sequence;          // -1: none
  uint64_t id;               // 0: none
  uint64_t parent;           // for ITT; with capture::kUsersParent if it is a user's range; 0: none
};

// `thread` is what the first function returns to the calling thread. It is valid as long as that thread lives.
struct Calls {
  void* (*thread)();
  void (*begin)(void* thread, const Op& op);
  void (*end)(void* thread);
  // Returns a handle for a text that is used many times. NVTX's handles of registered strings can be used in its place.
  const void* (*keep)(const char* text);
};

enum Protocol : int { kNvtx, kItt };

// The collectors' library has this function, by this name. It returns null if the library has another version, or
// collects nothing.
using GetCalls = const Calls* (*)(int version, int protocol);
inline constexpr char kGetCalls[] = "opspan_collector_takes_ops";

}  // namespace opspan::direct
