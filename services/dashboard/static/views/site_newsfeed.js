// The newsfeed on the page Site: of the member that the service shows, or of one asked for.

import { card, h, setAttribute, setText } from "../dom.js";
import { clock, plural, whole } from "../format.js";
import { List } from "../list.js";
import { itemName } from "./site_parts.js";

const initials = (name) => name.split(" ").map((word) => word[0]).join("").slice(0, 2).toUpperCase();

function storyList() {
  return new List({
    css: "feed", label: "Stories, newest first", empty: "Nothing from this member's connections yet.",
    make() {
      const face = h("span", { class: "face", "aria-hidden": "true" }), author = h("strong"), did = h("span"), when = h("time"), text = h("p", { class: "text" }), likes = h("span", { class: "also" }), comment = h("p", { class: "comment" });
      const element = h("li", {}, face, h("div", {}, h("span", { class: "line" }, author, did, when), text, likes, comment));
      return {
        element,
        write(row) {
          setAttribute(element, "data-post", row.post);
          setText(face, initials(row.author));
          setAttribute(face, "class", `face hue-${[...row.author].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % 5}`);
          setText(author, row.author);
          setText(did, row.kind);
          setText(when, clock(row.at_ms));
          setText(text, row.kind === "shared" ? itemName(row.text.split("?")[0]) : row.text);
          setText(likes, [row.likes && `${row.liked_by} like${row.likes === 1 ? "s" : ""} this`, row.comments && plural(row.comments, "comment")].filter(Boolean).join(" · "));
          likes.hidden = !row.likes && !row.comments;
          comment.hidden = !row.comment;
          setText(comment, row.comment ? `${row.comment.name}: ${row.comment.text}` : "");
        },
      };
    },
  });
}

// `current`: returns the newsfeed of the member that the service shows, where one came.
export function newsfeedBox(current) {
  const whose = h("h3"), chosen = h("span", { class: "lead" });
  const stories = storyList();
  const wanted = h("input", { type: "number", min: 1, step: 1, placeholder: "member's number", "aria-label": "Number of the member whose newsfeed to show" });
  const say = h("p", { class: "said", role: "status" });
  const form = h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); look(); } }, h("label", {}, "Show another member", wanted), h("button", { type: "submit" }, "Show"));
  let member = 0, asked = 0; // 0: the one that the service shows

  async function look() {
    member = Number(wanted.value) || 0;
    setText(say, "");
    if (!member) { show(current()); return; }
    const mine = (asked += 1);
    try {
      const answer = await fetch(`/api/feed?${new URLSearchParams({ member })}`);
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      if (mine === asked) show(found);
    } catch (error) { setText(say, `The newsfeed did not answer: ${error.message}`); }
  }
  function show(found) {
    if (!found) return;
    setText(whose, found.member ? `For ${found.name}` : "No members are connected yet");
    setText(chosen, found.member ? `member ${whole(found.member)}, ${plural(found.connections, "connection")}` : "");
    stories.set(found.stories);
  }
  return {
    element: card("Newsfeed", "What a member's connections write, share, like and comment on; the newest first.", form, say, h("div", { class: "line" }, whose, chosen), stories.element),
    write(found) { if (!member) show(found); },
  };
}
