// Compiles only where our own declarations of ITT's structures have the layout of a vendor's header.
#include <ittnotify.h>

#include <cstddef>

#include "collectors/itt_abi.h"

#define SAME(ours, our_field, theirs, their_field)                                                              \
  static_assert(offsetof(opspan::itt::ours, our_field) == offsetof(theirs, their_field), #ours "." #our_field); \
  static_assert(sizeof(opspan::itt::ours::our_field) == sizeof(theirs::their_field), #ours "." #our_field)

static_assert(sizeof(opspan::itt::Domain) == sizeof(__itt_domain));
SAME(Domain, flags, __itt_domain, flags);
SAME(Domain, nameA, __itt_domain, nameA);
SAME(Domain, nameW, __itt_domain, nameW);
SAME(Domain, extra1, __itt_domain, extra1);
SAME(Domain, extra2, __itt_domain, extra2);
SAME(Domain, next, __itt_domain, next);

static_assert(sizeof(opspan::itt::StringHandle) == sizeof(__itt_string_handle));
SAME(StringHandle, strA, __itt_string_handle, strA);
SAME(StringHandle, strW, __itt_string_handle, strW);
SAME(StringHandle, extra1, __itt_string_handle, extra1);
SAME(StringHandle, extra2, __itt_string_handle, extra2);
SAME(StringHandle, next, __itt_string_handle, next);

static_assert(sizeof(opspan::itt::Id) == sizeof(__itt_id));
SAME(Id, d1, __itt_id, d1);
SAME(Id, d2, __itt_id, d2);
SAME(Id, d3, __itt_id, d3);

static_assert(sizeof(opspan::itt::ClockInfo) == sizeof(__itt_clock_info));
SAME(ClockInfo, frequency, __itt_clock_info, clock_freq);
SAME(ClockInfo, base, __itt_clock_info, clock_base);
static_assert(sizeof(opspan::itt::ClockDomain) == sizeof(__itt_clock_domain));
SAME(ClockDomain, info, __itt_clock_domain, info);
SAME(ClockDomain, fn, __itt_clock_domain, fn);
SAME(ClockDomain, fn_data, __itt_clock_domain, fn_data);
SAME(ClockDomain, extra2, __itt_clock_domain, extra2);
SAME(ClockDomain, next, __itt_clock_domain, next);

static_assert(int{opspan::itt::kUnknown} == __itt_metadata_unknown);
static_assert(int{opspan::itt::kU64} == __itt_metadata_u64);
static_assert(int{opspan::itt::kS64} == __itt_metadata_s64);
static_assert(int{opspan::itt::kU32} == __itt_metadata_u32);
static_assert(int{opspan::itt::kS32} == __itt_metadata_s32);
static_assert(int{opspan::itt::kU16} == __itt_metadata_u16);
static_assert(int{opspan::itt::kS16} == __itt_metadata_s16);
static_assert(int{opspan::itt::kFloat} == __itt_metadata_float);
static_assert(int{opspan::itt::kDouble} == __itt_metadata_double);
static_assert(int{opspan::itt::kScopeGlobal} == __itt_scope_global);
static_assert(int{opspan::itt::kScopeTrack} == __itt_scope_track);
static_assert(int{opspan::itt::kScopeTask} == __itt_scope_task);

int main() { return 0; }
