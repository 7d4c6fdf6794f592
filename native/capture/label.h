// The labels that the sinks pass to NVTX and ITT for an op: a payload schema, or ids and metadata. docs/labels.md
// describes them. Our own collectors get ops directly (collectors/direct.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace opspan::label {

inline constexpr char kDomain[] = "opspan";

// The colours of NVTX's ranges, by capture::Kind.
inline constexpr uint32_t kColors[] = {0xff9e9e9e, 0xff4c78a8, 0xfff58518, 0xffbab0ac, 0xff54a24b,
                                       0xff72b7b2, 0xffe45756, 0xffb279a2, 0xff9d755d, 0xff9d755d,
                                       0xff9d755d, 0xffb279a2, 0xffb279a2, 0xffb279a2};
inline uint32_t color_of(uint32_t kind) { return kColors[kind < std::size(kColors) ? kind : 0]; }

// --- NVTX: one payload of this schema
inline constexpr char kSchema[] = "opspan.op";

struct Payload {
  int64_t sequence;   // -1: none
  uint64_t op_id;     // 0: none
  uint32_t fwd_tid;   // 0: not a backward op, or not known
  uint32_t kind;      // capture::Kind
  const void* sizes;  // a registered string, or null
};

struct Field {
  const char* name;
  uint64_t type;  // as NVTX numbers them: 16 uint32, 17 int64, 18 uint64, 80 registered string
  size_t offset;
};
inline constexpr Field kFields[] = {
    {"seq", 17, offsetof(Payload, sequence)},    {"op_id", 18, offsetof(Payload, op_id)},
    {"fwd_tid", 16, offsetof(Payload, fwd_tid)}, {"kind", 16, offsetof(Payload, kind)},
    {"sizes", 80, offsetof(Payload, sizes)},
};

// --- ITT: a task id, (number, kTag, Whose), and metadata
inline constexpr uint64_t kTag = 0x6f7073;  // "ops"
enum Whose : uint64_t { kOps = 0, kUsers = 1 };

inline constexpr char kSequence[] = "seq";     // int64
inline constexpr char kOpId[] = "op_id";       // uint64
inline constexpr char kForward[] = "fwd_tid";  // uint64
inline constexpr char kSizes[] = "sizes";      // text

}  // namespace opspan::label
