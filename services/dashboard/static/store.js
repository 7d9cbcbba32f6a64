// The server's state: a snapshot, then numbered changes over one stream. A hidden tab closes its
// stream and continues with the changes since then, or a new snapshot.

const BASE = ["meta", "processes", "audit", "events"];
const LATE_MS = 10000; // so much later than usual a sample may be

export class Store {
  constructor() {
    this.sections = {};
    this.id = -1;
    this.wanted = new Set(BASE);
    this.listeners = new Set();
    this.source = null;
    this.isConnected = false;
    this.changed = new Set();
    this.frame = 0;
    this.sampledMs = 0; // the server's time of the values: ages are by it, since the browser's clock may be wrong
    this.isOld = false; // the server sends no new values, though it may be connected
    this.timer = 0;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
  }

  rows(name) { return this.sections[name] || {}; }
  list(name) { return Object.entries(this.rows(name)); }
  get meta() { return this.rows("meta").deployment || {}; }
  get audit() { return this.rows("audit").summary || null; }

  // Which sections the present view needs beside those of every view.
  want(names) {
    const wanted = new Set([...BASE, ...names]);
    const same = wanted.size === this.wanted.size && [...wanted].every((name) => this.wanted.has(name));
    this.wanted = wanted;
    for (const name of Object.keys(this.sections)) if (!wanted.has(name)) delete this.sections[name];
    if (!same || !this.source) { this.id = -1; this.open(); }
  }

  open() {
    this.close();
    if (document.hidden) return;
    if (!this.timer) this.expectWithin(LATE_MS);
    const source = new EventSource(`/api/stream?after=${this.id}&sections=${[...this.wanted].join(",")}`);
    this.source = source;
    source.addEventListener("snapshot", (event) => {
      const received = JSON.parse(event.data);
      this.sections = received.sections;
      this.took(received);
      this.note(this.wanted);
    });
    source.onmessage = (event) => {
      const received = JSON.parse(event.data);
      this.took(received);
      for (const [name, change] of Object.entries(received.changes)) {
        const rows = (this.sections[name] ||= {});
        for (const key of change.gone || []) delete rows[key];
        Object.assign(rows, change.set || {});
      }
      this.note(Object.keys(received.changes));
    };
    source.onopen = () => { this.isConnected = true; this.note(["link"]); };
    source.onerror = () => {
      this.isConnected = false;
      this.note(["link"]);
      if (source.readyState === EventSource.CLOSED && this.source === source) {
        this.source = null;
        setTimeout(() => this.source || this.open(), 2000);
      }
    };
  }

  close() {
    if (this.source) this.source.close();
    this.source = null;
    if (document.hidden) { clearTimeout(this.timer); this.timer = 0; }
  }

  took({ id, at_ms, age_ms, pause_ms }) {
    this.id = id;
    this.sampledMs = at_ms;
    const left = LATE_MS + pause_ms - age_ms;
    this.isOld = left <= 0;
    this.expectWithin(left);
  }

  expectWithin(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.isOld = this.sampledMs > 0;
      this.note(["link"]);
    }, ms);
  }

  note(names) {
    for (const name of names) this.changed.add(name);
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const changed = this.changed;
      this.changed = new Set();
      for (const listener of this.listeners) listener(changed);
    });
  }
}
