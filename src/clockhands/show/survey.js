// The table of a survey: filtered, sorted, and drawn one page at a time, so that 10,000 rows stay quick.
const survey = JSON.parse(document.getElementById("survey").textContent);
const place = Object.fromEntries(survey.columns.map((name, index) => [name, index]));
const byId = (id) => document.getElementById(id);
const PER_PAGE = 200;
const RANGES = ["base", "factor", "context"];
const CHOICES = ["text", "grade", "type", "finding", "runtime", ...RANGES.flatMap((name) => [`${name}-from`, `${name}-to`])];
const NUMBERS = new Set([...RANGES, "head"]);
const LISTS = new Set(["problems", "kinds", "differs", "refused"]);
const RANK = Object.fromEntries(Object.keys(survey.grades).map((name, index) => [name, index]));

// What is looked for is compared in small letters, which are made once.
const texts = survey.rows.map((row) => [row[place.name], row[place.verdict], row[place.type]].join(" ").toLowerCase());
const state = { sort: "grade", down: false, page: 0 };
let shown = [];

const wanted = () => Object.fromEntries(CHOICES.map((name) => [name, byId(`survey-${name}`).value.trim()]));
const words = (text) => (text ? text.split(" ") : []);

function filtered() {
  const want = wanted();
  const looked = want.text.toLowerCase().split(/\s+/).filter(Boolean);
  const among = [want.finding, want.runtime].filter(Boolean).map((chosen) => chosen.split(" "));
  const ranges = RANGES.map((name) => [place[name], want[`${name}-from`], want[`${name}-to`]])
    .filter(([, from, to]) => from !== "" || to !== "")
    .map(([at, from, to]) => [at, from === "" ? -Infinity : Number(from), to === "" ? Infinity : Number(to)]);
  const found = [];
  survey.rows.forEach((row, index) => {
    if (want.grade && row[place.grade] !== want.grade) return;
    if (want.type && row[place.type] !== want.type) return;
    if (among.some(([column, word]) => !words(row[place[column]]).includes(word))) return;
    if (ranges.some(([at, from, to]) => row[at] === null || row[at] < from || row[at] > to)) return;
    if (looked.every((word) => texts[index].includes(word))) found.push(index);
  });
  return found;
}

/** Sorted by a column; rows without a value come last in both directions, and equal ones stay in the order of names. */
function sorted(indexes) {
  const at = place[state.sort];
  const key = state.sort === "grade" ? (row) => RANK[row[at]] : NUMBERS.has(state.sort) ? (row) => row[at] : (row) => row[at].toLowerCase();
  const keys = new Map(indexes.map((index) => [index, key(survey.rows[index])]));
  const sign = state.down ? -1 : 1;
  const none = (value) => value === null || value === "";
  return indexes.sort((first, second) => {
    const a = keys.get(first), b = keys.get(second);
    if (none(a) !== none(b)) return none(a) ? 1 : -1;
    return a < b ? -sign : a > b ? sign : first - second;
  });
}

function made(name, text, attributes = {}) {
  const element = document.createElement(name);
  if (text) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function mark(grade) {
  const [kind, shape] = survey.marks[grade];
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", `report-mark ${kind}`);
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS("http://www.w3.org/2000/svg", "path"));
  svg.firstChild.setAttribute("d", shape);
  return svg;
}

const number = (value) => (value === null ? "" : value.toLocaleString("en", { maximumSignificantDigits: 10 }));

function line(row) {
  const value = (name) => row[place[name]];
  const tr = made("tr");
  const head = made("th", "", { scope: "row" });
  head.append(value("page") ? made("a", value("name"), { href: value("page") }) : made("span", value("name")));
  if (value("grade") !== "correct") head.append(made("span", value("verdict"), { class: "survey-verdict" }));
  tr.append(head);
  const grade = made("td", "", { "data-label": "result" });
  grade.append(mark(value("grade")), survey.grades[value("grade")]);
  tr.append(grade);
  for (const [name, label] of Object.entries(survey.labels)) {
    if (name === "name" || name === "grade") continue;
    const listed = () => words(value(name)).map((word) => survey.words[name]?.[word] ?? word).join(", ");
    const said = NUMBERS.has(name) ? number(value(name)) : LISTS.has(name) ? listed() : value(name);
    tr.append(made("td", said, { "data-label": label, class: NUMBERS.has(name) ? "is-number" : "is-text" }));
  }
  return tr;
}

function draw() {
  const pages = Math.max(1, Math.ceil(shown.length / PER_PAGE));
  state.page = Math.min(state.page, pages - 1);
  const start = state.page * PER_PAGE;
  const part = shown.slice(start, start + PER_PAGE);
  byId("survey-rows").replaceChildren(...part.map((index) => line(survey.rows[index])));
  const count = (value) => value.toLocaleString("en");
  const which = part.length ? `, ${count(start + 1)} to ${count(start + part.length)} below` : "";
  byId("survey-count").textContent = `${count(shown.length)} of ${count(survey.rows.length)} models${which}.`;
  byId("survey-back").disabled = state.page === 0;
  byId("survey-on").disabled = state.page === pages - 1;
  for (const th of document.querySelectorAll("#survey-table thead th")) {
    const own = th.dataset.column === state.sort;
    th.setAttribute("aria-sort", own ? (state.down ? "descending" : "ascending") : "none");
  }
  byId("survey-sort").value = state.sort;
  byId("survey-order").value = state.down ? "down" : "up";
  const want = wanted();
  for (const button of document.querySelectorAll("button[data-filter]")) {
    button.setAttribute("aria-pressed", String(want[button.dataset.filter] === button.dataset.value));
  }
}

function update() {
  shown = sorted(filtered());
  draw();
  const given = Object.entries({ ...wanted(), sort: state.sort, down: state.down ? "1" : "", page: state.page || "" });
  const kept = new URLSearchParams(given.filter(([name, value]) => value !== "" && !(name === "sort" && value === "grade")));
  history.replaceState(null, "", `#${kept}`);
}

/** Filters and order as the address has them, so that the way back from a model leads to the same rows. */
function restore() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of CHOICES) byId(`survey-${name}`).value = given.get(name) ?? "";
  if (given.get("sort") in survey.labels) state.sort = given.get("sort");
  state.down = given.get("down") === "1";
  state.page = Math.max(0, Math.floor(Number(given.get("page"))) || 0);
  update();
}

function sortBy(name) {
  state.down = state.sort === name && !state.down;
  state.sort = name;
  state.page = 0;
  update();
}

function turnTo(page) {
  state.page = page;
  update();
  byId("survey-count").scrollIntoView({ block: "nearest" });
}

for (const name of CHOICES) {
  byId(`survey-${name}`).addEventListener("input", () => {
    state.page = 0;
    update();
  });
}
for (const th of document.querySelectorAll("#survey-table thead th")) {
  th.firstElementChild.addEventListener("click", () => sortBy(th.dataset.column));
}
byId("survey-sort").addEventListener("input", (event) => {
  Object.assign(state, { sort: event.target.value, page: 0 });
  update();
});
byId("survey-order").addEventListener("input", (event) => {
  Object.assign(state, { down: event.target.value === "down", page: 0 });
  update();
});
byId("survey-back").addEventListener("click", () => turnTo(state.page - 1));
byId("survey-on").addEventListener("click", () => turnTo(state.page + 1));
byId("survey-clear").addEventListener("click", () => {
  for (const name of CHOICES) byId(`survey-${name}`).value = "";
  state.page = 0;
  update();
});
for (const button of document.querySelectorAll("button[data-filter]")) {
  button.addEventListener("click", () => {
    const { filter, value } = button.dataset;
    byId(`survey-${filter}`).value = byId(`survey-${filter}`).value === value ? "" : value;
    state.page = 0;
    update();
  });
}
addEventListener("hashchange", restore);
restore();
