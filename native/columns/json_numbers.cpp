// Reads JSON numbers exactly, because a double cannot hold a time in microseconds since 1970 with its decimals.

#include <charconv>
#include <cmath>

#include "columns/json.h"

namespace opspan::columns {
namespace {

__extension__ using Wide = __int128;

struct Decimal {
  Wide digits = 0;  // the digits as a number, with the sign
  int64_t exponent = 0;
};

std::optional<Decimal> decimal(std::string_view word) {
  constexpr Wide kMost = Wide{1} << 100;
  Decimal value;
  size_t at = 0;
  bool any = false, past_point = false;
  const bool negative = !word.empty() && word[0] == '-';
  if (!word.empty() && (word[0] == '-' || word[0] == '+')) ++at;
  for (; at < word.size(); ++at) {
    if (word[at] == '.' && !past_point) {
      past_point = true;
    } else if (word[at] >= '0' && word[at] <= '9') {
      any = true;
      if (value.digits < kMost) {
        value.digits = value.digits * 10 + (word[at] - '0');
        value.exponent -= past_point;
      } else {
        value.exponent += !past_point;
      }
    } else {
      break;
    }
  }
  if (!any) return {};
  if (at < word.size()) {
    if (word[at] != 'e' && word[at] != 'E') return {};
    const bool plus = at + 1 < word.size() && word[at + 1] == '+';
    const char* from = word.data() + at + 1 + plus;
    int32_t exponent = 0;
    const auto [end, failed] = std::from_chars(from, word.data() + word.size(), exponent);
    if (failed != std::errc() || end != word.data() + word.size()) return {};
    value.exponent += exponent;
  }
  if (negative) value.digits = -value.digits;
  return value;
}

// Returns digits * 10^exponent, rounded half away from zero.
std::optional<int64_t> round_decimal(Decimal value) {
  constexpr Wide kBound = Wide{1} << 62;
  if (value.digits == 0) return 0;
  for (; value.exponent > 0; --value.exponent) {
    value.digits *= 10;
    if (value.digits > kBound || value.digits < -kBound) return {};
  }
  if (value.exponent < -36) return 0;
  Wide divisor = 1;
  for (; value.exponent < 0; ++value.exponent) divisor *= 10;
  const Wide half = value.digits < 0 ? -(divisor / 2) : divisor / 2;
  const Wide result = (value.digits + half) / divisor;
  if (result > kBound || result < -kBound) return {};
  return static_cast<int64_t>(result);
}

}  // namespace

template <int kDecimals>
std::optional<int64_t> Json::plain_number() {
  // The most digits before the decimal point. With them, the number times 10^kDecimals still fits into 64 bits.
  constexpr ptrdiff_t kMostDigits = 18 - (kDecimals > 0 ? kDecimals - 1 : 0);
  constexpr uint64_t kBound = uint64_t{1} << 62;
  const char* at = at_;
  const bool is_negative = at != end_ && *at == '-';
  at += is_negative;
  uint64_t sum = 0;
  auto digits = [&] {
    const char* from = at;
    for (; at != end_ && *at >= '0' && *at <= '9'; ++at) sum = sum * 10 + static_cast<uint64_t>(*at - '0');
    return at - from;
  };
  const ptrdiff_t whole_digits = digits();
  if (whole_digits == 0 || whole_digits > kMostDigits) return {};
  if constexpr (kDecimals > 0) {
    ptrdiff_t decimals = 0;
    if (at != end_ && *at == '.') {
      ++at;
      decimals = digits();
      if (decimals == 0) return {};
    }
    if (decimals > kDecimals) return {};
    for (; decimals < kDecimals; ++decimals) sum *= 10;
  }
  if (at == end_ || is_word(*at) || sum > kBound) return {};
  at_ = at;
  return is_negative ? -static_cast<int64_t>(sum) : static_cast<int64_t>(sum);
}

template std::optional<int64_t> Json::plain_number<0>();
template std::optional<int64_t> Json::plain_number<3>();

std::optional<int64_t> thousandfold(std::string_view word) {
  auto value = decimal(word);
  if (!value) return {};
  value->exponent += 3;
  return round_decimal(*value);
}

std::optional<int64_t> integer(std::string_view word) {
  int64_t result = 0;
  const bool hex = word.starts_with("0x") || word.starts_with("0X");
  const char *from = word.data() + (hex ? 2 : 0), *to = word.data() + word.size();
  const auto [end, failed] = std::from_chars(from, to, result, hex ? 16 : 10);
  if (failed == std::errc() && end == to && from != to) return result;
  if (hex || failed == std::errc::result_out_of_range) return {};
  const auto value = decimal(word);
  return value ? round_decimal(*value) : std::nullopt;
}

std::optional<double> real(std::string_view word) {
  double result = 0;
  const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), result);
  if (failed != std::errc() || end != word.data() + word.size() || !std::isfinite(result)) return {};
  return result;
}

}  // namespace opspan::columns
