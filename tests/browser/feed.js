// Feeds a view the rows that were on the page, moved on by a second each time.
// Returns by how many bytes and elements a view has grown.
async ([view, turns]) => {
    const [draw] = Object.values(await import(`/views/${view}.js`));
    if (!window.kept) {
        window.kept = (await (await fetch("/api/snapshot")).json()).sections;
    }
    const sections = structuredClone(window.kept);
    const store = storeOf(sections);
    const root = document.createElement("main");
    document.body.append(root);
    const shown = draw(root, { store, show() {}, hide() {} }, new URLSearchParams(""));
    const all = new Set(Object.keys(sections));
    const heap = () => { gc(); return performance.memory.usedJSHeapSize; };
    const history = (section, at) => {
        const rows = sections[section];
        const keys = Object.keys(rows);
        if (!keys.length) return;
        rows[String(at)] = { ...rows[keys.at(-1)] };
        if (keys.length >= 450) delete rows[keys[0]];
    };
    let first = 0, firstNodes = 0;
    const base = Date.now();
    for (let turn = 0; turn < turns; turn += 1) {
        for (const row of Object.values(sections.processes)) { row.in_s += 1; row.out_s += 1; }
        for (const row of Object.values(sections.partitions)) { row.end += 7; row.watermark += 7; }
        for (const row of Object.values(sections.groups)) row.looked_ms += 1000;
        history("latency", base + turn * 2000);
        history("flow", base + turn * 2000);
        const number = 100000 + turn;
        const text = `event ${turn}`;
        sections.events[number] = { at_ms: base + turn, kind: "info", subject: "x", text };
        if (turn > 100) delete sections.events[number - 100];
        if (sections.audit.summary) sections.audit.summary.produced += 500;
        if (turn % 10 === 0) {
            const cells = Object.values(sections.cells);
            const oldest = Math.min(...cells.map((cell) => cell.window));
            for (const cell of cells.filter((found) => found.window === oldest)) {
                delete sections.cells[`${cell.topic}|${cell.window}`];
                const window = base + turn * 1000;
                sections.cells[`${cell.topic}|${window}`] = { ...cell, window };
            }
        }
        shown.update(all);
        if (turn === Math.floor(turns / 4)) {
            first = heap();
            firstNodes = root.getElementsByTagName("*").length;
        }
        if (turn % 50 === 0) await new Promise((done) => setTimeout(done, 0));
    }
    const grown = [heap() - first, root.getElementsByTagName("*").length - firstNodes];
    if (shown.close) shown.close();
    root.remove();
    return grown;
}
