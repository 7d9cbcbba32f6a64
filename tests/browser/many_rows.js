// Returns the milliseconds of the quickest of twenty updates of a table of ten thousand rows: what an
// update costs, not what else the machine does.
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
    const took = [];
    for (let turn = 0; turn < 20; turn += 1) {
        const began = performance.now();
        rows.forEach((row) => { row.end += 1; });
        table.scroll.scrollTop = turn * 15000;
        table.set(rows);
        took.push(performance.now() - began);
        await new Promise(requestAnimationFrame);
    }
    if (document.querySelectorAll("tbody tr").length > 400) {
        throw new Error("all rows are drawn");
    }
    return Math.min(...took);
}
