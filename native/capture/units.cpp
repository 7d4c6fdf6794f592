// What a thread's log writes beside short ranges: texts through its cache, other ranges, and units about other units.
#include <algorithm>
#include <utility>

#include "capture/hash.h"
#include "capture/writer.h"

namespace opspan::capture {

uint32_t Log::intern(std::string_view text) {
  uint64_t hash = hash_of(text);
  Known* known = &known_[hash % kKnown & ~size_t{1}];
  for (int way = 0; way < 2; ++way) {
    Known& entry = known[way];
    if (entry.hash == hash && entry.id && entry.length == text.size() &&
        std::memcmp(entry.begin(), text.data(), text.size()) == 0) {
      return entry.id;
    }
  }
  uint32_t id = intern_slowly(text);
  if (!id || text.size() > kLongestKnown) return id;
  std::swap(known[0], known[1]);  // the older of the two goes
  known[0].hash = hash;
  known[0].length = static_cast<uint32_t>(text.size());
  known[0].id = id;
  bool fits = text.size() <= sizeof(Known::text);
  known[0].long_text.reset(fits ? nullptr : new char[text.size()]);
  text.copy(fits ? known[0].text : known[0].long_text.get(), text.size());
  return id;
}

uint32_t Log::learn(const OpName& name) {
  uint32_t id = intern(std::string_view(name.text));
  if (id) names_.keep(name, id);
  return id;
}

uint32_t Log::learn(Constant& constant) {
  uint32_t id = intern(std::string_view(constant.text_));
  if (id) constant.known_.store(uint64_t{file_} << 32 | id, std::memory_order_relaxed);
  return id;
}

Place Log::append_whole(const Event& event) {
  skip_half();
  if (next_ >= limit_ && !grow()) return {};
  Place place{owner_, number_, 0, tid_, writer_};
  write_whole(next_, event);
  next_ += 2;
  number_ += 2;
  if (event.kind == static_cast<uint8_t>(Unit::kRange) && event.range.end_ns == 0) ++chunk_.open;
  return place;
}

Place Log::append_whole(const Brief& range) { return append_whole(whole(range)); }

Place Log::append(const Event& event) {
  if (is_small(event)) {
    if (is_short(event)) {
      const auto& range = event.range;
      return append(
          Brief{event.flags, event.name, range.category, range.forward_tid, range.start_ns, range.value, range.id});
    }
    uint64_t model;
    return append_small(event, &model);
  }
  if (!is_block(event)) return append_whole(event);
  const auto& memory = event.memory;
  return append(block_of(event.flags, memory.address, memory.time_ns, memory.bytes, memory.total));
}

// A range that is small, and not short.
Place Log::append_small(const Event& event, uint64_t* model) {
  Apart its = apart(event);
  *model = model_for(its.common);
  if (*model == kOnce) return append_whole(event);
  if (*model == kLost) return {};
  return append_range(event.range.start_ns, [&](Half* at) { write_like(at, event, *model, its.extra); });
}

// The number of the unit that tells what these ranges have in common; kOnce where this is the first of them, kLost
// where there is no room: that has been counted.
uint64_t Log::model_for(const Common& common) {
  auto [model, is_known] = models_.slot(common.hash(), file_, [&](const Model& it) { return it.common == common; });
  if (!is_known) {
    if (model) *model = {common, kOnce, file_, {}};
    return kOnce;
  }
  // Too far back for 32 bits: told once more.
  if (model->number == kOnce || !reaches(model->number)) [[unlikely]] {
    Place place = append_whole(model_of(common));
    if (!place) return kLost;
    model->number = place.number;
  }
  return model->number;
}

void Log::attribute(uint64_t owner, uint32_t key, AttributeType type, const void* values, size_t count,
                    uint16_t flags) {
  size_t each = type == AttributeType::kBytes ? 1 : sizeof(uint64_t);
  size_t most = sizeof(Event::attribute.words) / each;
  auto* from = static_cast<const char*>(values);
  do {
    size_t some = std::min(count, most);
    Event event{};
    event.kind = static_cast<uint8_t>(Unit::kAttribute);
    event.flags = flags;
    event.name = key;
    event.attribute.owner = owner;
    event.attribute.type = static_cast<uint32_t>(type);
    event.attribute.count = static_cast<uint32_t>(some);
    if (some) std::memcpy(event.attribute.words, from, some * each);
    append(event);
    from += some * each;
    count -= some;
  } while (count);
}

void Log::attribute_text(const Place& place, uint32_t key, uint32_t text) {
  uint64_t value = text;
  if (place) attribute(place.number, key, AttributeType::kText, &value, 1);
}

void Log::blob(const Place& place, const void* bytes, size_t count, uint32_t schema) {
  auto* from = static_cast<const char*>(bytes);
  constexpr size_t kMost = sizeof(Event::blob.bytes);
  for (size_t some = kMost; place && some == kMost; from += some, count -= some) {
    some = std::min(count, kMost);
    Event event{};
    event.kind = static_cast<uint8_t>(Unit::kBlob);
    event.flags = static_cast<uint16_t>(some);
    event.name = schema;
    event.blob.owner = place.number;
    if (some) std::memcpy(event.blob.bytes, from, some);
    append(event);
  }
}

void Log::ids(const Place& place, const uint64_t id[3], const uint64_t parent[3]) {
  if (!place) return;
  Event event{};
  event.kind = static_cast<uint8_t>(Unit::kIds);
  event.ids.owner = place.number;
  std::memcpy(event.ids.id, id, sizeof(event.ids.id));
  std::memcpy(event.ids.parent, parent, sizeof(event.ids.parent));
  append(event);
}

}  // namespace opspan::capture
