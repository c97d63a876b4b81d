#include "trace/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

namespace kvbm::trace {

namespace {

constexpr size_t kMostColumns = 64;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Splits a line at commas, because neither form quotes its fields.
std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (bool more = true; more && fields.size() < kMostColumns;) {
    const size_t end = line.find(',');
    fields.push_back(trimmed(line.substr(0, end)));
    more = end != std::string_view::npos;
    if (more) line.remove_prefix(end + 1);
  }
  return fields;
}

// Places of the three fields in a line.
struct Columns {
  size_t time = SIZE_MAX, input = SIZE_MAX, output = SIZE_MAX, count = 0;
};

Columns columns_of(std::string_view header, Form form) {
  const bool azure = form == Form::azure;
  Columns columns;
  for (const std::string_view name : fields_of(header)) {
    if (name == (azure ? "TIMESTAMP" : "Timestamp")) columns.time = columns.count;
    if (name == (azure ? "ContextTokens" : "Request tokens")) columns.input = columns.count;
    if (name == (azure ? "GeneratedTokens" : "Response tokens")) columns.output = columns.count;
    ++columns.count;
  }
  return columns;
}

bool whole(const Columns& columns) {
  return columns.time != SIZE_MAX && columns.input != SIZE_MAX && columns.output != SIZE_MAX;
}

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Returns the days since 1970 of a day of the Gregorian calendar.
int64_t days_of(int64_t year, int64_t month, int64_t day) {
  const int64_t y = month <= 2 ? year - 1 : year;
  const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return 365 * y + y / 4 - y / 100 + y / 400 + of_year - 719468;
}

// Parses "2023-11-16 18:15:46.6805900", or with a T and a zone of +00:00 or Z, in milliseconds.
std::optional<double> date_of(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T') || text[13] != ':' ||
      text[16] != ':') {
    return std::nullopt;
  }
  for (const std::string_view zone : {"+00:00", "Z"}) {
    if (text.size() > zone.size() && text.substr(text.size() - zone.size()) == zone) {
      text.remove_suffix(zone.size());
      break;
    }
  }
  const auto year = number_of<uint32_t>(text.substr(0, 4));
  const auto month = number_of<uint32_t>(text.substr(5, 2));
  const auto day = number_of<uint32_t>(text.substr(8, 2));
  const auto hour = number_of<uint32_t>(text.substr(11, 2));
  const auto minute = number_of<uint32_t>(text.substr(14, 2));
  const auto second = number_of<double>(text.substr(17));
  if (!year || !month || !day || !hour || !minute || !second || *month < 1 || *month > 12 || *day < 1 || *day > 31 ||
      *year < 1970 || *hour > 23 || *minute > 59 || !(*second >= 0 && *second < 61)) {
    return std::nullopt;
  }
  const double minutes = static_cast<double>((days_of(*year, *month, *day) * 24 + *hour) * 60 + *minute);
  return (minutes * 60 + *second) * 1000;
}

std::optional<double> time_of(std::string_view text, Form form) {
  if (form == Form::azure) return date_of(text);
  const auto seconds = number_of<double>(text);
  if (!seconds || !std::isfinite(*seconds)) return std::nullopt;
  return *seconds * 1000;
}

struct Row {
  double time_ms = 0;
  uint32_t input = 0, output = 0;
};

bool read_row(std::string_view line, Form form, const Columns& columns, const ParseLimits& limits, Row& row,
              std::string& what) {
  if (line.size() > limits.line_bytes) {
    what = "longer than " + std::to_string(limits.line_bytes) + " bytes";
    return false;
  }
  const std::vector<std::string_view> fields = fields_of(line);
  if (fields.size() != columns.count) {
    what = std::to_string(fields.size()) + " fields, the header has " + std::to_string(columns.count);
    return false;
  }
  const auto time = time_of(fields[columns.time], form);
  const auto input = number_of<uint32_t>(fields[columns.input]);
  const auto output = number_of<uint32_t>(fields[columns.output]);
  if (!time || *time < 0 || *time > static_cast<double>(limits.timestamp_ms)) {
    what = form == Form::azure ? "TIMESTAMP must be a time, as 2023-11-16 18:15:46.68"
                               : "Timestamp must be seconds, 0 or more";
    return false;
  }
  if (!input || !output || *input > limits.tokens || *output > limits.tokens) {
    what = "tokens must be whole numbers, 0 to " + std::to_string(limits.tokens);
    return false;
  }
  row = {*time, *input, *output};
  return true;
}

}  // namespace

Form form_of_header(std::string_view line) {
  if (line.size() > 4096) return Form::automatic;
  for (const Form form : {Form::azure, Form::burstgpt}) {
    if (whole(columns_of(line, form))) return form;
  }
  return Form::automatic;
}

Result<Parsed> parse_csv(std::string_view text, Form form, const ParseOptions& options) {
  Parsed parsed;
  parsed.form = form;
  parsed.trace.lengths_alone = true;
  std::vector<Row> rows;
  Columns columns;
  std::string what;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    parsed.lines += 1;
    if (trimmed(line).empty()) continue;
    if (columns.count == 0) {
      columns = columns_of(line.substr(0, options.limits.line_bytes), form);
      if (whole(columns)) continue;
      return Status(Code::invalid_argument, "bad trace line",
                    "line " + std::to_string(parsed.lines) + ": not the header of this form: " +
                        (form == Form::azure ? "TIMESTAMP,ContextTokens,GeneratedTokens"
                                             : "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"));
    }
    Row row;
    if (read_row(line, form, columns, options.limits, row, what)) {
      rows.push_back(row);
      continue;
    }
    parsed.bad_lines += 1;
    if (!options.skip_bad) {
      return Status(Code::invalid_argument, "bad trace line", "line " + std::to_string(parsed.lines) + ": " + what);
    }
    if (parsed.bad.size() < options.reported_bad) parsed.bad.push_back({parsed.lines, what});
  }
  double first = rows.empty() ? 0 : rows.front().time_ms;
  for (const Row& row : rows) first = std::min(first, row.time_ms);
  for (const Row& row : rows) {
    parsed.trace.requests.push_back(
        {static_cast<uint64_t>(std::llround(row.time_ms - first)), row.input, row.output, 0, 0});
  }
  return parsed;
}

}  // namespace kvbm::trace
