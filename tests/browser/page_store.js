// A store as the page has it, over these sections of a snapshot.
const storeOf = (sections) => ({
    rows: (section) => sections[section] || {},
    sampledMs: Date.now(),
    list: (section) => Object.entries(sections[section] || {}),
    get meta() { return sections.meta.deployment; },
    get audit() { return sections.audit.summary || null; },
});
