// Stands in for fmt where torch does not bring it: Kineto's headers, which torch brings, include it all the same. Some
// of their functions call this one, but none of those is called here.
#pragma once

#include <string>

namespace fmt {

template <class... Values>
std::string format(const char* form, const Values&... values);

}  // namespace fmt
