// The server's state: a snapshot, then numbered changes over one stream. A hidden tab closes its
// stream and continues with the changes since then, or a new snapshot.

const BASE = ["meta", "processes", "audit", "events"];

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
    const source = new EventSource(`/api/stream?after=${this.id}&sections=${[...this.wanted].join(",")}`);
    this.source = source;
    source.addEventListener("snapshot", (event) => {
      const received = JSON.parse(event.data);
      this.sections = received.sections;
      this.id = received.id;
      this.note(this.wanted);
    });
    source.onmessage = (event) => {
      const received = JSON.parse(event.data);
      this.id = received.id;
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
