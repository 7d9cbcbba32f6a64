// Where each box, frame and line of the picture Topology lies: figures only, from the rows.

const KINDS = { frontend: "Frontends", proxy: "Load balancer", broker: "Brokers", "online-consumer": "Online consumers", site: "Site", mirror: "Mirror", loader: "Load job", audit: "Audit", warehouse: "Warehouse", link: "Link" };
export const CHIP_H = 24;
const NODE_H = 50, GAP_Y = 14;
const OVER = 9; // between a node and a line around it
const SET_HEAD = 42, SET_FOOT = 10; // above and below the members of a replica set
// Layouts by width of the window. Columns: senders, balancers, brokers, readers.
// `letters`: of a name, so many fit into a box; the detail and the table have all of it.
const WIDE = { W: 1180, w: 210, columns: [30, 330, 630, 940], head: 58, letters: 20 };
const NARROW = { W: 380, w: 108, columns: [8, 8, 136, 264], head: 62, letters: 11 };
export const CHIP_LETTERS = 30;

// The layout: live datacenters above, the offline one below, between them the processes of both. The
// datacenters are those of the processes. Processes outside the flow (ZooKeeper, registry, dashboard,
// unknown kinds) are chips in their datacenter's heading.
// `members`: what membersByProcess returns; the members of a replica set are in one frame.
// Returns {nodes: {key: {x, y, w, h}}, frames, panels, labels, width, height, isWide}.
export function layoutOf(rows, width, members) {
  const isWide = width >= 760;
  const size = isWide ? WIDE : NARROW;
  const of = (dc, ...kinds) => Object.keys(rows).filter((key) => kinds.includes(rows[key].role === "link" ? "link" : rows[key].kind) && (!dc || rows[key].dc === dc)).sort(byName);
  const chips = (dc) => Object.keys(rows).filter((key) => rows[key].dc === dc && !KINDS[rows[key].kind]).sort(byName);
  const bands = [
    ...liveDatacenters(rows).map((dc) => ({ dc, title: titleOf(dc), stacks: [[0, of(dc, "frontend")], [1, of(dc, "proxy")], [2, of(dc, "broker")], [3, of(dc, "online-consumer", "site")]] })),
    { dc: "", stacks: [[1, of(null, "link")], [2, of(null, "mirror")], [3, of(null, "audit")]] },
    { dc: "offline", title: "Offline datacenter", stacks: [[1, of(null, "loader")], [0, of(null, "warehouse")], [2, of("offline", "broker")], [3, of("offline", "online-consumer")]] },
  ];
  const nodes = {}, labels = [], panels = [], frames = [];
  let y = 8;
  for (const { dc, title, stacks } of bands) {
    // On a narrow window the first two columns are one.
    const columns = new Map();
    for (const [at, keys] of stacks) if (keys.length) columns.set(size.columns[at], [...(columns.get(size.columns[at]) || []), ...keys]);
    if (isWide && title) for (const [at, keys] of stacks) if (keys.length) labels.push({ x: size.columns[at], y: y + 48, text: KINDS[rows[keys[0]].kind] });
    const placed = new Map([...columns].map(([x, keys]) => [x, stackOf(keys, members)]));
    const inner = Math.max(NODE_H, ...[...placed.values()].map((stack) => stack.height));
    let head = title ? size.head : 0;
    if (title) {
      // Chips: to the right of the title, or below it in lines.
      let x = isWide ? size.W - 20 : 14, line = y + (isWide ? 9 : 28);
      const found = chips(dc);
      for (const key of isWide ? found.reverse() : found) {
        const w = Math.min(size.W - 40, Math.min(rows[key].name.length, CHIP_LETTERS) * (isWide ? 8.7 : 7.6) + (isWide ? 44 : 34));
        if (!isWide && x + w > size.W - 12) { x = 14; line += CHIP_H + 4; head += CHIP_H + 4; }
        if (isWide) x -= w;
        nodes[key] = { x, y: line, w, h: CHIP_H };
        x += isWide ? -8 : w + 6;
      }
      panels.push({ x: isWide ? 8 : 2, y, w: size.W - (isWide ? 16 : 4), h: head + inner + 14, title });
    }
    for (const [x, stack] of placed) {
      const top = y + head + (inner - stack.height) / 2, out = isWide ? 12 : 4;
      for (const [key, at] of stack.places) nodes[key] = { x, y: top + at, w: size.w, h: NODE_H };
      for (const frame of stack.frames) frames.push({ set: frame.set, x: x - out, y: top + frame.from, w: size.w + 2 * out, h: frame.to - frame.from });
    }
    y += head + inner + (title ? 14 : 0) + (dc === "offline" ? 8 : 24);
  }
  return { nodes, labels, panels, frames, width: size.W, height: y, isWide, letters: size.letters };
}
// The places of a column's boxes from its top, and the frames of the replica sets among them.
function stackOf(keys, members) {
  const setOf = (key) => (members.has(key) ? setKey(members.get(key).set) : "");
  const places = [], frames = [];
  let at = 0;
  for (const key of [...keys].sort((a, b) => byName(setOf(a), setOf(b)))) { // stable: by name within a set
    const set = setOf(key), last = frames.at(-1);
    if (set && (!last || last.set !== set)) {
      if (places.length) at += SET_FOOT;
      frames.push({ set, from: at, to: 0 });
      at += SET_HEAD;
    }
    places.push([key, at]);
    if (set) frames.at(-1).to = at + NODE_H + SET_FOOT;
    at += NODE_H + GAP_Y;
  }
  return { places, frames, height: at - GAP_Y + (frames.length ? SET_FOOT : 0) };
}
export const setKey = (set) => `${set.dc}/${set.broker_id}`;
// The first live datacenter is called live; others have names.
function liveDatacenters(rows) {
  const names = new Set(Object.values(rows).map((row) => row.dc).filter((dc) => dc !== "offline"));
  return ["live", ...[...names].filter((dc) => dc !== "live").sort(byName)];
}
const titleOf = (dc) => `${dc.slice(0, 1).toUpperCase()}${dc.slice(1)} datacenter`;
const byName = (a, b) => a.localeCompare(b, "en", { numeric: true });

// The curve from box `a` to box `b`, around the boxes between.
export function path(a, b, nodes, isWide) {
  const middle = (node) => [node.x + node.w / 2, node.y + NODE_H / 2];
  const [ax, ay] = middle(a), [bx, by] = middle(b);
  if (Math.abs(ax - bx) > 60) {
    const right = bx > ax;
    const between = nodes.filter((node) => right && node.h === NODE_H && node.x > a.x + a.w && node.x + node.w < b.x && node.y - OVER < Math.max(ay, by) && node.y + NODE_H + OVER > Math.min(ay, by));
    if (between.length) return over(a.x + a.w, ay, b.x, by, between);
    const x1 = right ? a.x + a.w : a.x, x2 = right ? b.x : b.x + b.w;
    const bend = (x2 - x1) / 2;
    return `M${x1} ${ay}C${x1 + bend} ${ay} ${x2 - bend} ${by} ${x2} ${by}`;
  }
  const y1 = by > ay ? a.y + NODE_H : a.y, y2 = by > ay ? b.y : b.y + NODE_H;
  if (nodes.some((node) => node.h === NODE_H && node.x === a.x && node.y > Math.min(a.y, b.y) && node.y < Math.max(a.y, b.y))) {
    // Around the nodes between, at the left side.
    const x = Math.min(a.x, b.x), out = isWide ? 60 : 22;
    return `M${x} ${ay}C${x - out} ${ay} ${x - out} ${by} ${x} ${by}`;
  }
  const bend = (y2 - y1) / 2;
  return `M${ax} ${y1}C${ax} ${y1 + bend} ${bx} ${y2 - bend} ${bx} ${y2}`;
}

// Above or below the nodes that stand between, whichever is nearer to the end.
function over(x1, y1, x2, y2, between) {
  const y = y2 < y1 ? Math.min(...between.map((node) => node.y)) - OVER : Math.max(...between.map((node) => node.y)) + NODE_H + OVER;
  const left = Math.min(...between.map((node) => node.x)), right = Math.max(...between.map((node) => node.x + node.w));
  const m1 = (x1 + left) / 2, m2 = (right + x2) / 2;
  return `M${x1} ${y1}C${m1} ${y1} ${m1} ${y} ${left} ${y}L${right} ${y}C${m2} ${y} ${m2} ${y2} ${x2} ${y2}`;
}
