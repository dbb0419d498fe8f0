({
  // Labels that reach out of their picture, by how many pixels.
  clipped: () => {
    const found = [];
    for (const text of document.querySelectorAll("#explorer svg text")) {
      const box = text.getBoundingClientRect(), svg = text.ownerSVGElement.getBoundingClientRect();
      if (!box.width || !svg.height) continue;
      const out = Math.max(svg.left - box.left, box.right - svg.right, svg.top - box.top, box.bottom - svg.bottom);
      if (out > 1) found.push([text.closest("section").id, text.textContent, Math.round(10 * out) / 10]);
    }
    return found;
  },
  // Elements that reach out of the window.
  beyond: () => [...document.querySelectorAll("#explorer *")]
    .filter((each) => !each.closest("svg svg, select, .scrolled *") && !each.closest("svg *") && each.checkVisibility())
    .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1
      || each.getBoundingClientRect().left < -1)
    .map((each) => `${each.closest("section")?.id} ${each.localName}.${each.getAttribute("class")}`),
  // Words that their own box cuts off.
  cut: () => [...document.querySelectorAll("#explorer :is(p, h2, h3, label, button, li, figcaption, dt, dd, th)")]
    .filter((each) => each.checkVisibility() && each.clientWidth && each.scrollWidth > each.clientWidth + 1)
    .map((each) => `${each.closest("section")?.id} ${each.localName}: ${each.textContent.slice(0, 60)}`),
  // Controls that are hard to hit.
  small: () => [...document.querySelectorAll("#explorer :is(button, select, input, summary)")]
    .filter((each) => each.checkVisibility())
    .map((each) => [each, each.getBoundingClientRect()]).filter(([, box]) => box.width < 24 || box.height < 24)
    .map(([each, box]) => [each.closest("section")?.id, each.dataset.name ?? each.textContent, box.width, box.height]),
  // Each picture: its view, its role and its name.
  pictures: () => [...document.querySelectorAll("#explorer :is(svg, canvas)")]
    .filter((each) => each.checkVisibility() && !each.parentElement.closest("svg"))
    .filter((each) => !each.closest("[aria-hidden=true]"))
    .map((each) => [each.closest("section").id, each.getAttribute("role"), each.ariaLabel ?? ""]),
  // The views in the order of the page.
  shown: () => [...document.querySelectorAll("#explorer .story section")].map((each) => each.id),
  // Every sentence below the lesson that is read, from top to bottom.
  sentences: () => [...document.querySelectorAll("#explorer :is(.opening p, .story h2, .answer, .says)")]
    .filter((each) => each.checkVisibility()).map((each) => each.textContent).join(" "),
  // How many words are in view in the whole page and in the lesson: pieces of text with a letter in them, labels of
  // pictures and controls among them; of a list that is closed only the chosen one.
  words: () => {
    const inView = (text) => text.parentElement.checkVisibility() && !text.parentElement.closest("script, option:not(:checked)");
    const of = (place) => {
      const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
      let count = 0;
      while (texts.nextNode()) if (inView(texts.currentNode)) count += texts.currentNode.data.match(/\S*\p{L}\S*/gu)?.length ?? 0;
      return count;
    };
    return [".lesson", "body"].map((place) => of(document.querySelector(place)));
  },
  // All that is written, wherever it stands.
  written: () => [...document.querySelectorAll("#explorer :is(p, text, li, td, th, dd, label, button)")]
    .map((each) => each.textContent).join("\n"),
  // The value of each control.
  values: () => [...document.querySelectorAll("#explorer [data-name]")].map((each) => each.value ?? null),
  // Lists that stand on none of their words.
  undecided: () => [...document.querySelectorAll("#explorer select")]
    .filter((each) => each.selectedIndex < 0 && each.options.length).map((each) => each.id),
  // Sliders and their columns, in pixels.
  sliders: () => [...document.querySelectorAll(".control input[type=range]")].filter((each) => each.checkVisibility())
    .map((each) => [each.offsetWidth, each.parentElement.clientWidth]),
  // Width, height and dots of a picture.
  pixels: async (address) => {
    const picture = new Image();
    picture.src = address;
    await picture.decode();
    const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
    [canvas.width, canvas.height] = [picture.width, picture.height];
    context.drawImage(picture, 0, 0);
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    return [canvas.width, canvas.height, [...data]];
  },
  // Everything below the parts of each view, attributes in order of their names; what a canvas shows belongs to it.
  drawn: () => {
    const written = (node) => {
      if (node.nodeType === Node.TEXT_NODE) return node.data;
      const attributes = [...node.attributes].map(({ name, value }) => [name, value]).sort();
      const own = node.localName === "canvas" ? node.toDataURL() : node.value ?? null;
      return [node.localName, attributes, own, [...node.childNodes].filter((each) => each.data !== "").map(written)];
    };
    const parts = [...document.querySelectorAll("#explorer .story section")].flatMap((section) =>
      [".answer", ".controls", ".figure"].map((part) => [`${section.id} ${part}`, written(section.querySelector(part))]));
    return parts.map(([name, each]) => [name, JSON.stringify(each)]);
  },
});
