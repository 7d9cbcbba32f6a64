// Draws a view over the present snapshot with some rows instead of its own ({section: {key: row}});
// a section named in `whole` has no others. Returns the text that is to be seen.
async ([view, rows, whole]) => {
    const module = await import(`/views/${view}.js`);
    const draw = module[view] || Object.values(module)[0];
    const { sections } = await (await fetch("/api/snapshot")).json();
    for (const name of whole) sections[name] = {};
    for (const [name, given] of Object.entries(rows)) {
        for (const [key, row] of Object.entries(given)) {
            sections[name][key] = { ...sections[name][key], ...row };
        }
    }
    const root = document.createElement("main");
    document.body.append(root);
    const shown = draw(root, { store: storeOf(sections), show() {}, hide() {} }, new URLSearchParams(""));
    shown.update(new Set(Object.keys(sections)));
    const text = root.innerText;
    root.remove();
    return text;
}
