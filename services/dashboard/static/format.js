// Numbers and times as text.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
export const isNumber = (value) => typeof value === "number" && Number.isFinite(value); // one that JSON has no number for comes as text
const noNumber = (value) => (value === null || value === undefined ? "–" : "?");
export const whole = (value) => (isNumber(value) ? grouped.format(value) : noNumber(value));
export const plural = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;

export function bytes(value) {
  if (!isNumber(value)) return noNumber(value);
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  let size = value;
  while (Math.abs(size) >= 1000 && unit < units.length - 1) { size /= 1000; unit += 1; }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${units[unit]}`;
}
// The lag of a group, or of one of its partitions: not known where the end of a log is not.
const isUnknown = (row) => row.state === "UNKNOWN" && (row.lag_bytes ?? null) === null;
export const lag = (row) => (isUnknown(row) ? "?" : bytes(row.lag_bytes));
export const rate = (value) => (isNumber(value) ? `${bytes(value)}/s` : noNumber(value));
export const perSecond = (value) => (isNumber(value) ? `${value >= 10 || value === 0 ? whole(value) : value.toFixed(1)}/s` : noNumber(value));

export function duration(ms) {
  if (!isNumber(ms)) return noNumber(ms);
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59500) return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
  const seconds = Math.round(ms / 1000); // rounded first: there is no 1 min 60 s
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const minutes = Math.round(ms / 60000);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
// The age of the first unread message; one that came since the look before has no age yet: looks are at most 10 s apart, or
// it is not known.
export function behind(row) {
  if (isUnknown(row) || (row.lag_bytes && (row.lag_ms ?? null) === null)) return "?";
  return row.lag_bytes && row.lag_ms === 0 ? "< 10 s" : duration(row.lag_ms);
}
const two = (number) => String(number).padStart(2, "0");
const isTime = (ms) => !Number.isNaN(new Date(Number(ms)).getTime());
// In UTC, as commands, logs and tables are: a time of the page can be looked for in them.
export function clock(ms) {
  if (ms === null || ms === undefined || !isTime(ms)) return noNumber(ms);
  const date = new Date(Number(ms));
  return `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())}`;
}
export function moment(ms) {
  if (ms === 0 || ms === null || ms === undefined || !isTime(ms)) return ms === 0 ? "–" : noNumber(ms);
  const date = new Date(Number(ms));
  return `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())} ${clock(ms)}.${String(date.getUTCMilliseconds()).padStart(3, "0")}`;
}
// What a group says of the messages that it has read, beside what was produced.
export function validated(found) {
  if (!found) return "–";
  const since = found.counted_from_ms ? ` from ${moment(found.counted_from_ms).slice(0, 19)} on` : "";
  const upTo = found.complete_to_ms ? `complete up to ${clock(found.complete_to_ms)}${since}` : "";
  if (found.state === "complete") return upTo || "complete";
  if (found.state === "pending" || found.state === "not audited") return found.state; // pending: no window is over, or a broker is away
  return [found.number ? `${found.state} ${whole(found.number)}` : found.state, upTo].filter(Boolean).join(", ");
}
