// The page: all views on one state.

import { auditOf } from "./audits.js";
import { bannerOf } from "./banner.js";
import { Codebook, CUSTOM } from "./codebook.js";
import { contentsOf } from "./contents.js";
import { button, choice, slider } from "./controls.js";
import { html } from "./draw.js";
import { exportButtons } from "./export.js";
import { lessonOf } from "./lesson/lesson.js";
import { inNotebook } from "./notebook.js";
import { opening, settingsWords } from "./opening.js";
import { saidOfCode } from "./shown.js";
import { DEFAULTS, Store, fromFragment, toFragment } from "./state.js";
import { added } from "./views/added.js";
import { attention } from "./views/attention.js";
import { bias } from "./views/bias.js";
import { clock } from "./views/clock.js";
import { difference } from "./views/difference.js";
import { distance } from "./views/distance.js";
import { formula } from "./views/formula.js";
import { ladder } from "./views/ladder.js";
import { lookback } from "./views/lookback.js";
import { model } from "./views/model.js";
import { naive } from "./views/naive.js";
import { pair } from "./views/pair.js";
import { precision } from "./views/precision.js";
import { scores } from "./views/scores.js";
import { shift } from "./views/shift.js";
import { spacing } from "./views/spacing.js";
import { table } from "./views/table.js";
import { trained } from "./views/trained.js";

// The story: its parts, and in each the views with their names in the contents. What a view uses, one before it explains.
const PARTS = [
  ["The problem", [[attention, "Attention and order"], [naive, "Just counting"]]],
  ["The idea", [[pair, "Two waves"], [clock, "Many hands"], [spacing, "Their speeds"], [table, "The table"], [formula, "The formula"]]],
  ["What it gives", [[shift, "Three further"], [lookback, "Looking back"], [distance, "Distances"], [scores, "Scores"], [added, "Adding"]]],
  ["Where it fails", [[precision, "Rounding"], [ladder, "Past the length"]]],
  ["In today’s models", [[bias, "Biases"], [model, "A model"], [difference, "Two encodings"]]],
];
// The trained model, where the page has one, is before all of them.
const VIEWS = [trained, ...PARTS.flatMap(([, views]) => views.map(([view]) => view))];
const CUSTOM_WORDS = { sinusoidal: "custom, added to tokens", rotary: "custom RoPE" };
const WIDE = 1080; // CSS pixels from which on the contents have a column of their own
const NARROW = 640; // and up to which the controls that stay are fields alone
const TELLING = 200; // ms without a change after which the address says the state
const UNTOLD = 1000; // ms after which it does so although the state moves on
const IN_A_TASK = 50; // ms of drawing, before the page may do something else
const RESTING = 150; // ms without a change after which views out of sight follow
const LONGEST = 131072; // tokens on the slider, unless a model is longer

// Fill a place with the explorer. `data` is what Python put in: codes by name, and the audit of each target.
export function explore(root, data, { fragment = "", onfragment = null, hosted = false, schedule = (call) => requestAnimationFrame(call) } = {}) {
  // Axes write numbers as the texts do.
  d3.formatDefaultLocale({ decimal: ".", thousands: "\u202f", grouping: [3], currency: ["", ""] });
  const book = new Codebook(data.codes);
  const models = [], audiences = [];
  const addModel = (given) => {
    const audit = auditOf(given);
    const place = models.push({ audit, codes: book.addModel(audit, models.length, data.axes) }) - 1;
    for (const tell of audiences) tell(place);
    return place;
  };
  const addCode = (name, code) => {
    data.codes[name] = code;
    for (const tell of audiences) tell(null);
  };
  for (const audit of data.models) addModel(audit);
  const defaults = book.opened({ ...DEFAULTS, ...data.start });
  const stateOf = (address) => book.opened(fromFragment(address, defaults), new Set(new URLSearchParams(address.replace(/^#/, "")).keys()));
  const store = new Store(stateOf(fragment), schedule);
  const set = store.set.bind(store);
  store.set = (patch) => set(book.followed(patch, store.state));
  const everything = new Set(Object.keys(DEFAULTS)), updates = [];
  const queue = new Queue(updates, store, () => drawn());
  const redraw = () => { root.setAttribute("aria-busy", "true"); queue.tell(everything); };
  const app = {
    root, store, data, models, addModel, addCode, redraw,
    onModels: (tell) => audiences.push(tell),
    missing: () => book.missing,
    code: (state) => book.code(state),
    spec: (state) => book.spec(state),
    given: (state) => book.given(state),
    additive: (state) => book.additive(state),
    whyNoShift: (state) => book.whyNoShift(state),
    whyNoShiftNamed: (name) => book.whyNoShiftNamed(name),
    ladder: (state) => book.ladder(state),
    head: (state) => book.head(state),
    plain: (state) => book.plain(state),
    rates: (state) => book.ladder(state).rates,
    ladderNamed: (name) => book.ladderNamed(name),
    scrollTo: (name) => {
      const element = elements.get(name);
      element?.scrollIntoView();
      element?.focus({ preventScroll: true });
    },
  };

  const only = viewsIn(fragment, data), shown = only.length ? only : VIEWS.map(({ id }) => id);
  const notice = html("p", { class: "notice", role: "status" });
  app.notice = (text) => { notice.textContent = text; };
  const bar = html("div", { class: "bar" }, mainControls(app), hosted ? null : themeButton(root, redraw));
  const story = html("div", { class: "story" }), sections = [], parts = [];
  for (const [part, views] of PARTS) {
    const held = views.filter(([view]) => shown.includes(view.id)), made = held.map(([view]) => [view, sectionOf(view, only.length > 0)]);
    if (held.length && !only.length) story.append(html("p", { class: "part-name" }, part));
    story.append(...made.map(([, section]) => section.element));
    sections.push(...made);
    parts.push([part, held.map(([view, name]) => [view.id, name])]);
  }
  const front = data.trained && shown.includes(trained.id) ? sectionOf(trained, only.length > 0) : null;
  if (front) sections.unshift([trained, front]);
  const elements = new Map(sections.map(([view, section]) => [view.id, section.element]));
  const contents = only.length ? null : contentsOf(parts, elements, app.scrollTo);
  root.classList.toggle("only", only.length > 0);
  // A page of models opens on them, and one of some views on these.
  const lesson = only.length || hosted || models.length || front ? null : lessonOf(app);
  const further = furtherControls(app, only.length > 0), reading = html("div", { class: "reading" }, contents, story), ordered = only.length ? [notice, reading, further] : [further, notice, reading];
  root.replaceChildren(...[lesson?.element, front?.element, lesson || front ? html("h2", { class: "reference" }, "Every picture, for any encoding") : null, bannerOf(app), only.length || hosted ? null : opening(), bar, ...ordered].filter(Boolean));
  const laid = () => {
    root.classList.toggle("wide", root.clientWidth >= WIDE);
    root.classList.toggle("narrow", root.clientWidth < NARROW);
  };
  laid();
  for (const [view, section] of sections) updates.push(view.mount(section, app));
  // The lesson has a state of its own, and is drawn anew where everything is.
  if (lesson) updates.push((_, changed) => { if (changed.size === everything.size) lesson.redraw(); });
  let telling = null, untold = null;
  store.subscribe((state, changed) => {
    queue.tell(changed);
    // Once it rests: an address costs a browser some milliseconds, and it slows a page down that moves its own all the time.
    if (!onfragment) return;
    untold ??= performance.now();
    clearTimeout(telling);
    telling = setTimeout(() => {
      untold = null;
      const told = toFragment(store.state, defaults, store.state.code === defaults.code ? [] : book.brings(store.state));
      onfragment([only.length ? `only=${only}` : "", told].filter(Boolean).join("&"));
    }, Math.max(0, Math.min(TELLING, untold + UNTOLD - performance.now())));
  });
  // A section is as tall as it will be once it is drawn.
  let opened = viewAt(fragment);
  const drawn = () => {
    root.removeAttribute("aria-busy");
    if (opened) app.scrollTo(opened);
    opened = null;
  };
  redraw();
  lesson?.run();
  // What is reached by a link is to stand below what stays.
  new ResizeObserver(() => {
    root.style.setProperty("--bar", `${bar.offsetHeight}px`);
    queue.watch(sections.map(([, section]) => section.element), only.length ? 0 : bar.offsetHeight);
  }).observe(bar);
  let width = root.clientWidth;
  new ResizeObserver(() => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    schedule(() => { laid(); redraw(); });
  }).observe(root);
  // Gives whether this page can show the address: one that asks for other views alone needs a page of its own.
  const follow = (address) => {
    if (`${viewsIn(address, data)}` !== `${only}`) return false;
    const view = viewAt(address);
    // A view's name alone leads there, and changes nothing. An address is a whole state: nothing follows from what was shown.
    if (address.replace(/^#/, "") !== view) set(stateOf(address));
    if (view) app.scrollTo(view);
    return true;
  };
  return { store, redraw, app, follow };
}

// The views that an address such as `#only=pair,clock` names, in the order of the story; those that the page does not have are
// left out.
function viewsIn(address, data) {
  const named = new Set((new URLSearchParams(address.replace(/^#/, "")).get("only") ?? "").split(","));
  return VIEWS.filter((view) => named.has(view.id) && (view !== trained || data.trained)).map(({ id }) => id);
}

// The view that an address such as `#pair` or `#pair&position=7` leads to, or null.
function viewAt(address) {
  const [first] = address.replace(/^#/, "").split("&");
  return VIEWS.some(({ id }) => id === first) ? first : null;
}

// Views that are in sight follow every change at once, as far as a frame has time for them; the others when they come into
// sight or the state has rested, one after another, so that what is being moved stays smooth.
class Queue {
  constructor(updates, store, drawn) {
    Object.assign(this, { updates, store, drawn, out: new Set(), waiting: new Map(), timer: null });
  }

  // Until the browser has said where they are, all are taken to be in sight. What is behind the bar, so many px tall, is not,
  // nor what only touches it.
  watch(elements, bar) {
    const places = new Map(elements.map((element, place) => [element, place]));
    this.watcher?.disconnect();
    this.watcher = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const place = places.get(target);
        if (!isIntersecting) this.out.add(place);
        else this.out.delete(place);
      }
      this.onward();
    }, { rootMargin: `-${bar + 1}px 0px 0px 0px` });
    for (const element of elements) this.watcher.observe(element);
  }

  tell(changed) {
    for (const place of this.updates.keys()) this.waiting.set(place, new Set([...(this.waiting.get(place) ?? []), ...changed]));
    this.onward();
  }

  // All that are in sight, as many at once as take no long time; who waited longest is first.
  onward() {
    const end = performance.now() + IN_A_TASK;
    for (const place of [...this.waiting.keys()].filter((each) => !this.out.has(each))) {
      if (performance.now() > end) return this.rest(0);
      this.catchUp(place);
    }
    if (this.waiting.size) this.rest(RESTING);
    else this.drawn();
  }

  // After so many ms one view more, those in sight first, and then the others one after another.
  rest(time) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const waiting = [...this.waiting.keys()];
      if (waiting.length) this.catchUp(waiting.find((place) => !this.out.has(place)) ?? waiting[0]);
      if (this.waiting.size) this.rest(0);
      else this.drawn();
    }, time);
  }

  catchUp(place) {
    const changed = this.waiting.get(place);
    this.waiting.delete(place);
    this.updates[place](this.store.state, changed);
  }
}

// What stays in view: the code that all views show, its width and base, and the position.
function mainControls(app) {
  const { store } = app, farthest = ({ length }) => Math.max(length - 1, 1);
  const position = slider(app, "position", "Position", { min: 0, max: farthest(store.state), unit: "token" });
  store.subscribe((state, changed) => { if (changed.has("length")) position.limits(0, farthest(state)); });
  return html("div", { class: "common", role: "group", "aria-label": "The encoding and the position" },
    codeChoice(app),
    slider(app, "width", "Width", { min: 2, max: 2048, step: 2, unit: "dimensions" }).element,
    slider(app, "base", "Base", { min: 2, max: 1e8, scale: "log" }).element,
    position.element);
}

// What is set less often, and whose code it is.
function furtherControls(app, bare) {
  const { store } = app, { state } = store;
  const length = slider(app, "length", "Length", { min: 2, max: Math.max(LONGEST, state.length), scale: "log", unit: "tokens" });
  const says = html("p", { class: "says" });
  const more = button("See all its settings", () => app.scrollTo("model"));
  const tell = () => {
    const code = app.code(store.state), text = saidOfCode(code, store.state, app.missing(), app.models);
    says.replaceChildren(text, ...(app.models.length && !bare ? [" ", more] : []));
  };
  store.subscribe((_, changed) => {
    if (changed.has("length") && store.state.length > LONGEST) length.limits(2, store.state.length);
    if (changed.has("code") || changed.has("width")) tell();
  });
  app.onModels(tell);
  tell();
  return html("div", { class: "further" },
    html("div", { class: "common", role: "group", "aria-label": "Length and layout" },
      length.element,
      choice(app, "layout", "Layout", [["interleaved", "interleaved (2i, 2i + 1)"], ["halves", "halves (i, i + d/2)"]]).element),
    ...(bare ? [] : [says, settingsWords()]));
}

// The codes by what they do; those of models come and go with them.
function codeChoice(app) {
  const { store, data } = app;
  const list = html("select", { id: "control-code", "data-name": "code", onchange: () => store.set({ code: list.value }) });
  const fill = () => {
    const groups = [["of the models", (code) => code.model], ["added to tokens", (code) => !code.model && code.kind === "sinusoidal"],
      ["rotating queries and keys", (code) => !code.model && code.kind === "rotary"]];
    list.replaceChildren(html("option", { value: CUSTOM }, CUSTOM_WORDS[store.state.kind]));
    for (const [words, belongs] of groups) {
      const options = Object.entries(data.codes).filter(([, code]) => belongs(code));
      if (options.length) list.append(html("optgroup", { label: words }, options.map(([name, code]) => html("option", { value: name }, code.model ? code.says : name))));
    }
    list.value = store.state.code;
  };
  app.onModels(fill);
  store.subscribe((state, changed) => {
    if (!changed.has("code")) return;
    list.options[0].textContent = CUSTOM_WORDS[state.kind];
    list.value = state.code;
  });
  fill();
  return html("div", { class: "control" }, html("label", { for: "control-code" }, "Encoding"), list);
}

// Paper or dark; as the system has it until it is pressed, and after the page is closed again.
function themeButton(root, redraw) {
  const system = matchMedia("(prefers-color-scheme: dark)"), page = document.documentElement;
  const dark = () => (page.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const show = () => { press.textContent = dark() ? "Light" : "Dark"; };
  const press = button("", () => {
    page.dataset.theme = dark() ? "light" : "dark";
    show();
    redraw();
  }, { class: "theme", title: "Change between paper and dark" });
  system.addEventListener("change", () => { show(); redraw(); });
  show();
  return press;
}

// A section: the question as its heading, the answer as a caption, its controls, the figure. `alone`, as in a frame of a
// course that says the rest, it begins with the figure.
function sectionOf(view, alone) {
  const answer = html("p", { class: "answer", "aria-live": "polite" });
  const controls = html("div", { class: "controls" });
  const figure = html("div", { class: "figure" });
  const element = html("section", { id: view.id, tabindex: -1, "aria-labelledby": `${view.id}-question` },
    html("h2", { id: `${view.id}-question` }, view.question), ...(alone ? [figure, answer, controls] : [answer, controls, figure]));
  exportButtons({ element, figure }, view.id);
  return { element, controls, figure, answer: (text) => { if (answer.textContent !== text) answer.textContent = text; } };
}

// As a widget in a notebook, by anywidget.
export default {
  render({ model: held, el }) {
    el.classList.add("clockhands");
    return inNotebook(held, el, explore);
  },
};
