// The part of Log that looks up texts in the cache, and writes all units other than short ranges.
#include <algorithm>
#include <utility>

#include "capture/hash.h"
#include "capture/writer.h"

namespace opspan::capture {

uint32_t Log::intern(std::string_view text) {
  uint64_t hash = hash_of(text);
  TextEntry* entries = &texts_[hash % kTextEntries & ~size_t{1}];
  for (int way = 0; way < 2; ++way) {
    TextEntry& entry = entries[way];
    if (entry.hash == hash && entry.id && entry.length == text.size() &&
        std::memcmp(entry.begin(), text.data(), text.size()) == 0) {
      return entry.id;
    }
  }
  uint32_t id = intern_slowly(text);
  if (!id || text.size() > kLongestText) return id;
  std::swap(entries[0], entries[1]);  // so that the new text replaces the older of the two
  entries[0].hash = hash;
  entries[0].length = static_cast<uint32_t>(text.size());
  entries[0].id = id;
  bool fits = text.size() <= sizeof(TextEntry::text);
  entries[0].long_text.reset(fits ? nullptr : new char[text.size()]);
  text.copy(fits ? entries[0].text : entries[0].long_text.get(), text.size());
  return id;
}

uint32_t Log::look_up(const OpName& name) {
  uint32_t id = intern(std::string_view(name.text));
  if (id) names_.add(name, id);
  return id;
}

uint32_t Log::look_up(Constant& constant) {
  uint32_t id = intern(std::string_view(constant.text_));
  if (id) constant.cached_.store(uint64_t{file_} << 32 | id, std::memory_order_relaxed);
  return id;
}

Place Log::append_full(const Event& event) {
  skip_half();
  if (next_ >= limit_ && !grow()) return {};
  Place place{owner_, number_, 0, tid_, writer_};
  write_full(next_, event);
  next_ += 2;
  number_ += 2;
  if (event.kind == static_cast<uint8_t>(Unit::kRange) && event.range.end_ns == 0) ++chunk_.open;
  return place;
}

Place Log::append_full(const BriefRange& range) { return append_full(full_event(range)); }

Place Log::append(const Event& event) {
  if (is_small(event)) {
    if (is_short(event)) {
      const auto& range = event.range;
      return append(BriefRange{event.flags, event.name, range.category, range.forward_tid, range.start_ns, range.value,
                               range.id});
    }
    uint64_t model;
    return append_small(event, &model);
  }
  if (!is_block(event)) return append_full(event);
  const auto& memory = event.memory;
  return append(block_of(event.flags, memory.address, memory.time_ns, memory.bytes, memory.total));
}

// Appends a range that fits into a Like but not into a Short. The Like refers to an earlier unit, the model.
Place Log::append_small(const Event& event, uint64_t* model) {
  SplitEvent parts = split(event);
  *model = model_for(parts.shared);
  if (*model == kOnce) return append_full(event);
  if (*model == kLost) return {};
  return append_range(event.range.start_ns, [&](Half* at) { write_like(at, event, *model, parts.extra); });
}

// Returns the number of the unit that holds the shared fields. Returns kOnce if this is the first range with these
// fields. Returns kLost if there was no room for the unit; the unit has then been counted as lost.
uint64_t Log::model_for(const SharedFields& shared) {
  auto [model, is_known] =
      models_.slot(shared.hash(), file_, [&](const Model& candidate) { return candidate.shared == shared; });
  if (!is_known) {
    if (model) *model = {shared, kOnce, file_, {}};
    return kOnce;
  }
  // A model that is too far back is written again, because a Like holds only the lower 32 bits of its number.
  if (model->number == kOnce || !is_in_reach(model->number)) [[unlikely]] {
    Place place = append_full(model_of(shared));
    if (!place) return kLost;
    model->number = place.number;
  }
  return model->number;
}

void Log::attribute(uint64_t owner, uint32_t key, AttributeType type, const void* values, size_t count,
                    uint16_t flags) {
  size_t value_bytes = type == AttributeType::kBytes ? 1 : sizeof(uint64_t);
  size_t most_values = sizeof(Event::attribute.words) / value_bytes;
  auto* from = static_cast<const char*>(values);
  do {
    size_t part = std::min(count, most_values);
    Event event{};
    event.kind = static_cast<uint8_t>(Unit::kAttribute);
    event.flags = flags;
    event.name = key;
    event.attribute.owner = owner;
    event.attribute.type = static_cast<uint32_t>(type);
    event.attribute.count = static_cast<uint32_t>(part);
    if (part) std::memcpy(event.attribute.words, from, part * value_bytes);
    append(event);
    from += part * value_bytes;
    count -= part;
  } while (count);
}

void Log::attribute_text(const Place& place, uint32_t key, uint32_t text) {
  uint64_t value = text;
  if (place) attribute(place.number, key, AttributeType::kText, &value, 1);
}

void Log::blob(const Place& place, const void* bytes, size_t count, uint32_t schema) {
  auto* from = static_cast<const char*>(bytes);
  constexpr size_t kMost = sizeof(Event::blob.bytes);
  for (size_t part = kMost; place && part == kMost; from += part, count -= part) {
    part = std::min(count, kMost);
    Event event{};
    event.kind = static_cast<uint8_t>(Unit::kBlob);
    event.flags = static_cast<uint16_t>(part);
    event.name = schema;
    event.blob.owner = place.number;
    if (part) std::memcpy(event.blob.bytes, from, part);
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
