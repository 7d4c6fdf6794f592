// The calls by which opspan's sinks hand ops to opspan's own collector, if that is the tool: one call has all that is
// known of an op, in place of several calls of NVTX or ITT. An op fits into one unit, and nothing is looked up twice.
#pragma once

#include <cstdint>

namespace opspan::direct {

inline constexpr int kVersion = 2;  // of this interface: the two libraries may be of two versions of opspan

struct Op {
  const char* name;       // ended by NUL
  uint32_t kind;          // capture::Kind
  uint32_t forward_tid;   // 0: not a backward op, or not known
  uint32_t sizes_length;  // 0: there are none, or sizes_handle stands for them
  const char* sizes;
  const void* sizes_handle;  // what keep() returned for the sizes; null: nothing
  int64_t sequence;          // -1: none
  uint64_t id;               // 0: none
  uint64_t parent;           // for ITT; with capture::kUsersParent if it is a user's range; 0: none
};

// `thread` is what the first function returns to the calling thread. It is valid as long as that thread lives.
struct Calls {
  void* (*thread)();
  void (*begin)(void* thread, const Op& op);
  void (*end)(void* thread);
  // Returns a handle of a text that comes again and again. NVTX's handles of registered strings are the same.
  const void* (*keep)(const char* text);
};

enum Protocol : int { kNvtx, kItt };

// The collectors' library has this function, by this name. It returns null if it is of another version, or collects
// nothing.
using GetCalls = const Calls* (*)(int version, int protocol);
inline constexpr char kGetCalls[] = "opspan_collector_takes_ops";

}  // namespace opspan::direct
