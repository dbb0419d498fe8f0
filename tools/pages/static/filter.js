// A field above long pages: what does not contain the words that are typed there is hidden.
"use strict";

const LONG_TABLE = 12; // rows; those of shorter tables are read together with the text around them
const MANY = 20; // sections or rows from which on a page has the field

document.addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector("article[role=main]");
  if (!article) return;
  const sections = [...article.querySelectorAll("section section")].filter((each) => !each.querySelector("section"));
  const tables = [...article.querySelectorAll("table")].filter((each) => each.tBodies[0]?.rows.length > LONG_TABLE);
  const rows = tables.flatMap((each) => [...each.tBodies[0].rows]);
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
    for (const each of [...rows, ...sections]) each.hidden = !matches(each);
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
