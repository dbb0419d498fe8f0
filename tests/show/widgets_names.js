// What two widgets on one page would give the same name, and labels that name nothing of their own widget.
() => {
  const times = new Map(), strays = [];
  for (const { id } of document.querySelectorAll("[id]")) times.set(id, (times.get(id) ?? 0) + 1);
  const widgets = [...document.querySelectorAll(".clockhands")];
  for (const widget of widgets) {
    for (const name of ["for", "aria-labelledby", "aria-describedby", "aria-controls"]) {
      for (const element of widget.querySelectorAll(`[${name}]`)) {
        for (const id of element.getAttribute(name).split(" ")) {
          if (!widget.contains(document.getElementById(id))) strays.push(`${name}=${id}`);
        }
      }
    }
    if (/url\((?!data:|blob:)/.test(widget.innerHTML)) strays.push("a picture's part is named");
  }
  const labels = widgets.map((widget) => widget.querySelectorAll("label[for]").length);
  return { labels, strays, twice: [...times].filter(([, count]) => count > 1).map(([id]) => id) };
}
