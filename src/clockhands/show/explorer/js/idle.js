// Work that a frame has no time for.

// A function that asks for `work`: it is done once, when the page has time, and within so many ms however busy it is.
export function whenIdle(work, most = 200) {
  let waiting = false;
  const run = () => { waiting = false; work(); };
  return () => {
    if (waiting) return;
    waiting = true;
    if (globalThis.requestIdleCallback) requestIdleCallback(run, { timeout: most });
    else setTimeout(run, most / 4);
  };
}
