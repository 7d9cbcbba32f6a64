// Replica sets in words: a set's state, a member's role. Every colour comes with a mark and a word.

import { tag } from "./dom.js";
import { bytes, whole } from "./format.js";

const SET_STATES = {
  "in sync": ["●", "good"], "under-replicated": ["▲", "warn"],
  "nothing confirmed": ["■", "bad"], "no leader": ["✕", "leaderless"],
};
export const setKind = (set) => (SET_STATES[set.state] || ["?", "idle"])[1];
export const setWord = (set) => `${(SET_STATES[set.state] || ["?"])[0]} ${set.state}${set.is_old ? " (old)" : ""}`;
export const setTag = (set) => tag(setWord(set), setKind(set));
export const setFigures = (set) => `epoch ${whole(set.epoch)} · ${set.in_sync} of ${set.members.length} in sync · min_insync ${set.min_insync}`;
// What ZooKeeper said last is not what is.
export const setSaid = (set) => (set.is_old ? `ZooKeeper does not answer; its last word: ${set.text}` : set.text);

export const roleKind = (member) => (member.role === "away" ? "bad" : member.is_in_sync ? "good" : "warn");
export const inSyncWord = (member) => (member.is_in_sync ? (member.role === "away" ? "counted still" : "in sync") : "not in sync");
export const behindWord = (member) => (member.role === "leader" ? "–" : bytes(member.behind_bytes));
export function memberLine(member) {
  if (member.role === "leader") return "leader";
  const parts = [member.role === "joining" ? "joining" : `${member.role}, ${inSyncWord(member)}`];
  if (member.behind_bytes) parts.push(`${bytes(member.behind_bytes)} behind`);
  return parts.join(" · ");
}

// By process key: {set, member}.
export function membersByProcess(sets) {
  return new Map(sets.flatMap((set) => set.members.filter((member) => member.key).map((member) => [member.key, { set, member }])));
}
export const bySet = (a, b) => a.dc.localeCompare(b.dc) || a.broker_id - b.broker_id;
