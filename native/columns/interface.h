// The functions of libopspan_columns. Most of them nest, attribute and link ranges, which are rows of a frame. Nearly
// all are C functions of the type opspan_columns_call.
//
// A function of this type takes one or two frames and a number, and returns a frame as an Arrow struct array. A frame
// is a stream with at most one batch of rows, and its columns are found by name. The function returns 0. On an error it
// returns -1 and writes a sentence to `error`. The caller still owns the streams.
//
// A column may hold any values. It is an error of the caller if a column is missing or has another type. Only the
// columns `rank`, `pid` and by0, by1, ... may be missing. If no frame of a call has the column `rank` or `pid`, all
// rows count as having the same value. by0, by1, ... divide the rows into groups. opspan.native is the Python side;
// docs/analysis.md says what the results mean.
#pragma once

#include "columns/arrow.h"

extern "C" {

// Returns the version of this interface, which grows with every change that an older Python side would not understand.
int opspan_columns_abi(void);

typedef int opspan_columns_call(ArrowArrayStream* first, ArrowArrayStream* second, int64_t number, ArrowSchema* schema,
                                ArrowArray* array, char* error, size_t error_size);

// The comments tell what the parameters `first`, `second` and `number` mean. The others are not used. A piece of text
// is given as its address and bytes in memory. For events, `number` is the reader's state times 2, plus 1 for the last
// piece.
opspan_columns_call opspan_columns_nest;          // first: ranges; number: end of the trace
opspan_columns_call opspan_columns_enclose;       // first: events
opspan_columns_call opspan_columns_innermost;     // first: ranges; second: points in time
opspan_columns_call opspan_columns_cover;         // first and second: spans of time
opspan_columns_call opspan_columns_covered;       // first: spans of time; second: stretches of time
opspan_columns_call opspan_columns_within;        // first: points in time; second: stretches of time
opspan_columns_call opspan_columns_cut;           // first: stretches of time; second: ranges and spans with kinds
opspan_columns_call opspan_columns_match;         // first: calls; second: device work
opspan_columns_call opspan_columns_nearest;       // first: the parent of each row, and whether it is marked
opspan_columns_call opspan_columns_rollup;        // first: the parent of each range; second: device work
opspan_columns_call opspan_columns_link;          // first: ranges with seq and parent; second: facts about names
opspan_columns_call opspan_columns_labels;        // first: texts; number: threads to use
opspan_columns_call opspan_columns_events;        // first: piece of a Chrome trace; second: keys of args
opspan_columns_call opspan_columns_metadata;      // first: texts; number: threads to use
opspan_columns_call opspan_columns_json_objects;  // first: texts; number: threads to use
opspan_columns_call opspan_columns_protobuf;      // first: rows; number: protobuf field number of a row
opspan_columns_call opspan_columns_timeline;      // first: slices of tracks
opspan_columns_call opspan_columns_places;        // first: shapes in lanes; number: rows of a lane
opspan_columns_call opspan_columns_blocks;        // first: shapes in drawing order; number: the most blocks
opspan_columns_call opspan_columns_latest;        // first: points; second: rows by time; number: 1 if row < point
opspan_columns_call opspan_columns_replay;        // first: work, then edges; second: joins; number: rows of work
opspan_columns_call opspan_columns_perf;          // first: piece of the text of `perf script`
opspan_columns_call opspan_columns_sqlite;        // first: columns; second: the table; number: file descriptor

// opspan_json_items starts writing the rows of a frame as items of a JSON list. It returns null on an error. Each call
// of opspan_json_items_next writes some of the items and returns the number of bytes; 0: there are no more items; -1:
// an error. The bytes are valid until the next call.
void* opspan_json_items(ArrowArrayStream* rows, int is_first, char* error, size_t error_size);
int64_t opspan_json_items_next(void* items, const char** bytes, char* error, size_t error_size);
void opspan_json_items_end(void* items);

// Writes the name of a C++ function as in its source, without a NUL at its end. Returns its length, or -1 if the name
// is not a mangled name, cannot be parsed, or does not fit.
int64_t opspan_demangle(const char* mangled, char* buffer, size_t size);
}

namespace opspan::columns {

Output nest(const Input& ranges, int64_t trace_end);
Output enclose(const Input& events);
Output innermost(const Input& ranges, const Input& points);
Output cover(const Input& spans, const Input& others);
Output covered(const Input& spans, const Input& stretches);
Output within(const Input& points, const Input& stretches);
Output cut(const Input& stretches, const Input& spans);
Output match(const Input& calls, const Input& work);
Output nearest(const Input& ranges);
Output rollup(const Input& ranges, const Input& work);
Output link(const Input& ranges, const Input& names);
Output labels(const Input& texts, int64_t workers);
Output events(const Input& piece, const Input& keys, int64_t number);
Output metadata(const Input& texts, int64_t workers);
Output json_objects(const Input& texts, int64_t workers);
Output protobuf(const Input& frame, int64_t number);
Output timeline(const Input& slices);
Output places(const Input& shapes, int64_t rows_of_lane);
Output blocks(const Input& shapes, int64_t most);
Output latest(const Input& points, const Input& candidates, int64_t is_strict);
Output replay(const Input& work, const Input& joins, int64_t count);
Output perf(const Input& piece);
// Defined in native/sqlite.
Output sqlite(const Input& wanted, const Input& table, int64_t descriptor);

}  // namespace opspan::columns
