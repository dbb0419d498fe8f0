// How much of a canvas differs from its first pixel, and the mean lightness of it all.
canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let other = 0, sum = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (data[at] !== data[0] || data[at + 1] !== data[1] || data[at + 2] !== data[2]) other++;
    sum += data[at] + data[at + 1] + data[at + 2];
  }
  return { other: (4 * other) / data.length, light: (4 * sum) / (3 * data.length) };
}
