// In place of the page's stream one that a test writes: `say(message)` is a snapshot where it has
// sections, and changes otherwise. `say` is there once the page has asked for a stream.
(() => {
    window.EventSource = class {
        constructor() {
            window.say = (message) => {
                const event = { data: JSON.stringify(message) };
                return message.sections ? this.snapshot(event) : this.onmessage(event);
            };
            queueMicrotask(() => this.onopen());
        }
        addEventListener(name, listener) { this[name] = listener; }
        close() {}
    };
})();
