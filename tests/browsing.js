// Keeps a list of what a page has asked to be called back for: frames, idle time and timers; those of many seconds clean
// up, and change nothing that is seen. Two frames and a task are waited for before the list is read, for what a page is
// told without having asked: that something came into sight, or changed its size.
(() => {
  const waiting = new Set(), own = {};
  for (const [ask, drop] of [["requestAnimationFrame", "cancelAnimationFrame"],
    ["requestIdleCallback", "cancelIdleCallback"], ["setTimeout", "clearTimeout"]]) {
    own[ask] = window[ask].bind(window);
    own[drop] = window[drop].bind(window);
    window[ask] = (call, ...how) => {
      const number = own[ask]((...told) => { waiting.delete(`${ask} ${number}`); call(...told); }, ...how);
      if (ask !== "setTimeout" || !(how[0] >= 5000)) waiting.add(`${ask} ${number}`);
      return number;
    };
    window[drop] = (number) => { waiting.delete(`${ask} ${number}`); own[drop](number); };
  }
  window.underWay = async () => {
    for (const wait of [own.requestAnimationFrame, own.requestAnimationFrame, own.setTimeout]) {
      await new Promise((done) => wait(done));
    }
    const busy = [...document.querySelectorAll("[aria-busy]")].map(({ localName, id }) => `busy ${localName} ${id}`);
    return [...waiting, ...busy];
  };
})();
