// Where the tool is opspan's own collector, opspan's sinks tell it of an op by one call, and not by NVTX's or ITT's:
// all that there is to say fits into one unit, and nothing is looked up twice.
#pragma once

#include <cstdint>

namespace opspan::direct {

inline constexpr int kVersion = 2;  // of what follows: the two libraries may be of two versions of opspan

struct Op {
  const char* name;       // ended by NUL
  uint32_t kind;          // capture::Kind
  uint32_t forward_tid;   // 0: not a backward op, or not known
  uint32_t sizes_length;  // 0: none, or they are kept
  const char* sizes;
  const void* sizes_handle;  // what keep() gave for them; null: nothing
  int64_t sequence;          // -1: none
  uint64_t id;               // 0: none
  uint64_t parent;           // of ITT's; with capture::kUsersParent for a user's range; 0: none
};

// `thread`: what the first function says to the thread that calls. Good while the thread lives.
struct Calls {
  void* (*thread)();
  void (*begin)(void* thread, const Op& op);
  void (*end)(void* thread);
  // For a text that comes again and again. NVTX's handles of registered strings are the same.
  const void* (*keep)(const char* text);
};

enum Protocol : int { kNvtx, kItt };

// By this name the collectors' library has it. Null: it is of another version, or collects nothing.
using GetCalls = const Calls* (*)(int version, int protocol);
inline constexpr char kGetCalls[] = "opspan_collector_takes_ops";

}  // namespace opspan::direct
