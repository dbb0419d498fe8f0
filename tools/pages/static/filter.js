// A field above long pages: what does not contain the words that are typed there is hidden.
"use strict";

const LONG_TABLE = 12; // rows; those of a shorter table are read together with the text around it, unless all are links
const MANY = 20; // sections or rows from which on a page has the field

document.addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector("article[role=main]");
  if (!article) return;
  const sections = [...article.querySelectorAll("section section")].filter((each) => !each.querySelector("section"));
  const rows = [...article.querySelectorAll("tbody")].flatMap((each) => {
    const inside = [...each.rows];
    return inside.length > LONG_TABLE || inside.every((row) => row.querySelector("a")) ? inside : [];
  });
  const title = article.querySelector("h1");
  if (!title || Math.max(sections.length, rows.length) < MANY) return;

  const field = document.createElement("input");
  field.type = "search";
  field.className = "filter";
  field.placeholder = "Filter this page";
  field.setAttribute("aria-label", "Filter this page: words that a row or a section must contain");
  const count = document.createElement("output");
  count.className = "filter-count";
  title.after(field, count);

  const text = new Map([...sections, ...rows].map((each) => [each, each.textContent.toLowerCase()]));
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (each) => words.every((word) => text.get(each).includes(word));
    for (const each of rows) each.hidden = !matches(each);
    for (const each of sections) {
      const inside = rows.filter((row) => each.contains(row));
      each.hidden = inside.length ? inside.every((row) => row.hidden) : !matches(each);
    }
    const found = (all) => all.filter((each) => !each.hidden).length;
    const parts = [];
    if (rows.length) parts.push(`${found(rows)} of ${rows.length} rows`);
    if (sections.length) parts.push(`${found(sections)} of ${sections.length} sections`);
    count.value = words.length ? parts.join(", ") : "";
  };
  field.addEventListener("input", show);
  // A link to a section that the filter hides shows it again.
  window.addEventListener("hashchange", () => {
    field.value = "";
    show();
    document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  });
});
