// Draws Topology with consumers that have something to say and a process without an answer.
// Returns the lines of its boxes that are cut or wider than their box, what the consumers' and
// the silent process's boxes say, and the facts of a consumer.
async () => {
    const { topology } = await import("/views/topology.js");
    const { sections } = await (await fetch("/api/snapshot")).json();
    const rows = Object.values(sections.processes);
    for (const row of rows.filter((each) => each.kind === "online-consumer")) {
        const number = 123456, complete_to_ms = Date.now();
        row.state = "up";
        row.lag_bytes = 12345678;
        row.facts = { ...row.facts, validated: { state: "missing", number, complete_to_ms } };
    }
    const silent = rows.find((each) => each.kind === "frontend");
    Object.assign(silent, { state: "silent", reason: "no answer for 12 s" });
    const store = storeOf(sections);
    const root = document.createElement("main");
    document.body.append(root);
    let facts = "";
    const show = (_name, list) => { facts = list.textContent; };
    topology(root, { store, show, hide() {} }, new URLSearchParams("")).update(new Set());
    const boxes = [...root.querySelectorAll("g.node")].map((node) => ({
        name: node.querySelector("text.name").textContent,
        said: node.querySelector("text.sub")?.textContent || "",
        width: node.querySelector("text.sub")?.getComputedTextLength() || 0,
        room: node.querySelector("rect.box").width.baseVal.value - 12,
    }));
    const bad = boxes.filter(({ said, width, room }) => said.endsWith("…") || width > room);
    [...root.querySelectorAll("g.node")].find((node) => node.dataset.focus.includes("online-")).dispatchEvent(new MouseEvent("click"));
    const of = (prefix) => boxes.find(({ name }) => name.startsWith(prefix)).said;
    root.remove();
    return { bad, consumer: of("online-"), silent: of(silent.name.slice(0, 8)), facts };
}
