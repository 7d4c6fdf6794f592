// ITT's domains, strings and clocks. Each copy of ITT in the process has lists of its own; here all copies share one
// object for each name.
#pragma once

#include "collectors/collector.h"
#include "collectors/itt_abi.h"

namespace opspan::collectors {

itt::Domain* create_domain(const char* name);
itt::StringHandle* create_string(const char* text);
// Takes over the names that a client made before this library was loaded.
void adopt(const itt::Global& global);

// Returns the text of a client's handle; null for a null handle.
capture::Constant* text_of(const itt::Domain* domain);
capture::Constant* text_of(const itt::StringHandle* handle);
// Returns the name of the function at this address, as the dynamic linker knows it, or the address as text.
capture::Constant* text_of_function(void* address);

inline uint32_t intern(capture::Log& log, capture::Constant* text) { return text ? log.intern(*text) : 0; }

itt::ClockDomain* create_clock(itt::GetClockInfo fn, void* data);
void reset_clocks();
// Converts a timestamp of a client's clock to a time of our clock.
int64_t time_ns(const itt::ClockDomain* clock, unsigned long long timestamp);

}  // namespace opspan::collectors
