// Draws a chart of long times and the time lines of members on hosts with long names. Returns the
// chart's labels that begin left of it, those that it has twice or without a value, and the members'
// names that reach into the bars.
async () => {
    const { Chart } = await import("/chart.js");
    const { Timeline } = await import("/timeline.js");
    const { duration } = await import("/format.js");
    const main = document.getElementById("main");
    const chart = new Chart({ title: "t", lines: [{ name: "ms", label: "l", css: "p50" }], format: duration, log: true });
    const lanes = new Timeline("t");
    main.replaceChildren(chart.element, lanes.element);
    chart.set([[0, { ms: 20 }], [60000, { ms: 900000000 }]]);
    const member = "orders_ip-10-20-112-145.eu-central-1-1300000000000-0a1b2c3d";
    lanes.set([{ name: "orders", moves: [{ at_ms: 1000, before_ms: 1000, members: { [member]: 3 }, moved: 0 }] }], 60000);
    const labels = [...chart.svg.querySelectorAll("text.axis")].filter((text) => text.getBBox().x < 0);
    const bar = lanes.svg.querySelector("rect.lane").getBBox();
    const names = [...lanes.svg.querySelectorAll("text.axis")].filter((text) => text.querySelector("title") && text.getBBox().x + text.getBBox().width > bar.x);
    const small = new Chart({ title: "t", lines: [{ name: "ms", label: "l", css: "p50" }], format: duration });
    main.append(small.element);
    const labelsOf = (ms) => {
        small.set([[0, { ms }]]);
        return [...small.svg.querySelectorAll("text.axis")].map((text) => text.textContent);
    };
    const twice = [1, 3, 4000].flatMap((ms) => labelsOf(ms).filter((text, index, all) => all.indexOf(text) < index));
    return [...[...labels, ...names].map((text) => text.textContent), ...twice, ...labelsOf(null)];
}
