// Makes elements. Strings only ever become text nodes: no code of the dashboard parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Sets text only when it differs: an unchanged page costs nothing and a screen reader stays quiet.
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

// The identity of an element over rewrites: its data-focus, its link or its label.
const identity = (element) => element.dataset.focus || element.getAttribute("href") || element.getAttribute("aria-label");

// Focuses `had`, or the element of `root` with the same identity, or else `root`.
export function focusAgain(root, had) {
  const name = identity(had);
  const same = had.isConnected ? had : name && [...root.querySelectorAll("[data-focus], [href], [aria-label]")].find((found) => identity(found) === name);
  if (same) same.focus({ preventScroll: true });
  if (!same || document.activeElement !== same) root.focus({ preventScroll: true }); // gone, or disabled meanwhile
}

// Rewrites the content of `root` and keeps the focus, which a moved node loses.
export function keepFocus(root, rewrite) {
  const had = root.contains(document.activeElement) && root !== document.activeElement ? document.activeElement : null;
  rewrite();
  if (had && document.activeElement !== had) focusAgain(root, had);
}

// Gives a choice these names; chosen is `wanted`, else what was chosen, else `usual`, whichever is one of them, else the first.
export function setOptions(select, names, wanted, usual) {
  const chosen = [wanted, select.value, usual].find((name) => names.includes(name)) ?? names[0];
  if (select.dataset.names !== JSON.stringify(names)) {
    select.dataset.names = JSON.stringify(names);
    select.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
  }
  if (chosen !== undefined && select.value !== chosen) select.value = chosen;
}

export const WAITING = "Waiting for the first values …"; // what is not known yet is not none
export const STATES = {
  up: ["●", "good", "up"], slow: ["●", "good", "up"], lagging: ["▲", "warn", "lagging"], silent: ["▲", "warn", "no answer"],
  down: ["✕", "bad", "down"], stopped: ["■", "idle", "stopped"], starting: ["◌", "idle", "starting"],
};
export const tag = (text, kind) => h("span", { class: `tag ${kind || ""}` }, text);
export const stateTag = (state) => {
  const [mark, kind, word] = STATES[state] || ["?", "idle", state];
  return tag(`${mark} ${word}`, kind);
};
export const VERDICTS = { OK: "good", WARN: "warn", UNKNOWN: "idle", STALL: "bad", STOP: "bad", REWIND: "bad" };

// The width of the widest of these texts in a picture, px; 0 while it is not shown. All are laid out at once.
export function widestText(svg, css, texts) {
  const probes = texts.map((text) => s("text", { class: css }, text));
  svg.append(...probes);
  const widths = probes.map((probe) => probe.getComputedTextLength());
  probes.forEach((probe) => probe.remove());
  return Math.max(0, ...widths);
}

// A part of a page with its heading and, where there is one, what it shows in a sentence.
export const card = (title, lead, ...children) => h("section", { class: "card" }, h("h2", {}, title), lead && h("p", { class: "lead" }, lead), ...children);
