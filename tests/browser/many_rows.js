// Returns what an update of a table of ten thousand rows costs, in plain sorts of as many numbers: of
// both the quickest of twenty, so neither the machine nor what else it does counts.
async () => {
    const { Table } = await import("/table.js");
    const columns = ["topic", "broker", "end", "rate"].map((name) => (
        { name, label: name, num: name === "end",
          text: (row) => row[name], sort: (row) => row[name] }));
    const table = new Table({ caption: "many", columns });
    document.getElementById("main").replaceChildren(table.element);
    const rows = Array.from({ length: 10000 }, (_, n) => (
        { topic: `topic-${n % 500}`, broker: `broker-${n % 20}`,
          end: n * 7919 % 10007, rate: `${n} B/s` }));
    table.set(rows);
    const took = [], sorted = [];
    for (let turn = 0; turn < 20; turn += 1) {
        const began = performance.now();
        rows.forEach((row) => { row.end += 1; });
        table.scroll.scrollTop = turn * 15000;
        table.set(rows);
        took.push(performance.now() - began);
        const from = performance.now();
        rows.map((row) => [row.end, row]).sort(([a], [b]) => a - b);
        sorted.push(performance.now() - from);
        await new Promise(requestAnimationFrame);
    }
    if (document.querySelectorAll("tbody tr").length > 400) {
        throw new Error("all rows are drawn");
    }
    return Math.min(...took) / Math.min(...sorted);
}
