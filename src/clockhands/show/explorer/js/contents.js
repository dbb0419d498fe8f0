// The contents: a link for each view under its part's name; the view that is being read is marked.

import { html } from "./draw.js";

// Of the window's height, from the top: the view that is there is the one that is read.
const READ_AT = 25;

// `parts`: [name, [[view's id, short name], …]] in order; `sections` the elements by id, `go` what a link does.
export function contentsOf(parts, sections, go) {
  const links = new Map(), list = html("ol", { class: "scrolled" }, parts.map(([part, views]) => html("li", {}, html("span", { class: "part-name" }, part),
    html("ol", {}, views.map(([id, name]) => {
      const link = html("a", { href: `#${id}`, onclick: (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        go(id);
      } }, name);
      links.set(sections.get(id), link);
      return html("li", {}, link);
    })))));
  let current = null;
  const mark = (link) => {
    current?.removeAttribute("aria-current");
    current = link;
    link.setAttribute("aria-current", "location");
    // Where the contents are a row, it moves along; the page itself does not.
    list.scrollTo({ left: link.offsetLeft - (list.clientWidth - link.offsetWidth) / 2 });
  };
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) mark(links.get(target));
  }, { rootMargin: `-${READ_AT}% 0px -${99 - READ_AT}% 0px` });
  for (const section of links.keys()) watcher.observe(section);
  return html("nav", { class: "contents", "aria-label": "Contents" }, list);
}
