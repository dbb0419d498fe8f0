// Work that a frame has no time for.

const SLICE = 6; // ms of work that has parts, before the page may do something else
const AT_ONCE = 40; // and of its first ones, where it is asked for at once
const SOON = 50; // ms until it goes on, however busy the page is
const LATEST = 200; // ms until it begins

// A function that asks for `work`: it is done once, when the page has time, and soon however busy it is. Work that is a
// generator is done part by part; what is asked for meanwhile begins when it has ended. `now()` does at once what takes no
// long time, and begins anew what was under way. As long as something is to be done, `place` says that it is busy.
export function whenIdle(work, place = null) {
  let parts = null, wanted = false, coming = false;
  const later = (time) => {
    if (coming) return;
    coming = true;
    if (globalThis.requestIdleCallback) requestIdleCallback(run, { timeout: time });
    else setTimeout(run, time / 4);
  };
  const run = (idle) => {
    coming = false;
    onward(Math.max(SLICE, idle?.timeRemaining() ?? 0));
  };
  const onward = (time) => {
    if (parts === null) {
      if (!wanted) return;
      wanted = false;
      const made = work();
      parts = made?.next ? made : null;
    }
    const end = performance.now() + time;
    while (parts !== null) {
      if (parts.next().done) parts = null;
      else if (performance.now() > end) return later(SOON);
    }
    if (wanted) later(LATEST);
    else place?.removeAttribute("aria-busy");
  };
  const ask = () => {
    wanted = true;
    place?.setAttribute("aria-busy", "true");
    if (parts === null) later(LATEST);
  };
  ask.now = () => {
    parts = null;
    wanted = true;
    place?.setAttribute("aria-busy", "true");
    onward(AT_ONCE);
  };
  return ask;
}

// What work in parts comes to, all at once.
export function allOf(parts) {
  for (;;) {
    const { done, value } = parts.next();
    if (done) return value;
  }
}
