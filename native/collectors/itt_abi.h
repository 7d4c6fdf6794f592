// The ITT structures that a tool gets. They are declared here because no package that a build can depend on contains
// them. tests/collectors/test_itt_abi.py checks the public structures against a vendor's ittnotify.h.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace opspan::itt {

struct Id {
  unsigned long long d1, d2, d3;
  bool operator==(const Id&) const = default;
  explicit operator bool() const { return d1 || d2 || d3; }
};

struct Domain {
  volatile int flags;  // 0: disabled, so clients make no calls
  const char* nameA;
  void* nameW;
  int extra1;
  void* extra2;  // for the tool: the Constant of the name
  Domain* next;
};

struct StringHandle {
  const char* strA;
  void* strW;
  int extra1;
  void* extra2;  // for the tool: the Constant of the text
  StringHandle* next;
};

struct ClockInfo {
  unsigned long long frequency;
  unsigned long long base;
};

using GetClockInfo = void (*)(ClockInfo* info, void* data);

struct ClockDomain {
  ClockInfo info;
  GetClockInfo fn;
  void* fn_data;
  int extra1;
  void* extra2;
  ClockDomain* next;
};

enum MetadataType : int { kUnknown, kU64, kS64, kU32, kS32, kU16, kS16, kFloat, kDouble };
enum Scope : int { kScopeUnknown, kScopeGlobal, kScopeTrackGroup, kScopeTrack, kScopeTask, kScopeMarker };

// An entry of the table through which a tool takes over ITT's calls. The client jumps to `*func_ptr`. If a tool does
// not want the call, it sets the pointer to `null_func`.
struct ApiInfo {
  const char* name;  // null in the last entry of the table
  void** func_ptr;
  void* init_func;
  void* null_func;
  int group;
};

// Every copy of ITT in a process has one Global. The names in its lists are those that were made before the tool was
// loaded.
struct Global {
  unsigned char magic[8];
  unsigned long version_major;
  unsigned long version_minor;
  unsigned long version_build;
  volatile long api_initialized;
  volatile long mutex_initialized;
  volatile long atomic_counter;
  pthread_mutex_t mutex;
  void* lib;
  void* error_handler;
  const char** dll_path_ptr;
  ApiInfo* api_list_ptr;
  Global* next;
  void* thread_list;
  Domain* domain_list;
  StringHandle* string_list;
  int state;
  // More fields follow. They depend on the version, and none of them is needed here.
};

inline constexpr unsigned char kMagic[8] = {0xed, 0xab, 0xab, 0xec, 0x0d, 0xee, 0xda, 0x30};

}  // namespace opspan::itt
