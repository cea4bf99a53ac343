// Stands after everything else in a checked page, looks at it as a reader would, and tells the page around it.
addEventListener("load", () => setTimeout(() => {
  const expect = (holds, otherwise) => { if (!holds) failures.push(otherwise); };
  try { look(expect); } catch (error) { failures.push(`the check itself: ${error.stack}`); }
  parent.postMessage({ failures, scheme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light", width: innerWidth }, "*");
}, 50));

function look(expect) {
  const page = document.documentElement;
  expect(page.scrollWidth <= innerWidth, `the page is ${page.scrollWidth} wide in a window of ${innerWidth}`);
  expect(!performance.getEntriesByType("resource").length, "the page asked for something else");
  expect(document.querySelectorAll("h1").length === 1, "there must be one main heading");
  const pictures = [...document.querySelectorAll("svg")].filter((svg) => svg.getClientRects().length);
  expect(pictures.length === document.querySelectorAll("figure").length, "each figure must show one of its drawings");
  for (const svg of pictures) {
    const name = svg.getAttribute("aria-label"), frame = svg.getBoundingClientRect(), box = svg.getBBox();
    expect(name, "a drawing has no name");
    expect(frame.width > 100 && frame.height > 50 && box.width > 100 && box.height > 50, `${name}: empty`);
    const scale = frame.width / svg.viewBox.baseVal.width;
    for (const text of svg.querySelectorAll("text")) {
      const at = text.getBoundingClientRect(), size = scale * parseFloat(getComputedStyle(text).fontSize);
      expect(size >= 10, `${name}: "${text.textContent}" is ${size} pixels high`);
      const inside = at.left >= frame.left - 2 && at.right <= frame.right + 2 && at.top >= frame.top - 2 && at.bottom <= frame.bottom + 2;
      expect(inside, `${name}: "${text.textContent}" sticks out`);
    }
    if (svg.dataset.area) plot(svg, name, frame, scale, expect);
  }
  const column = document.querySelector("main").getBoundingClientRect();
  for (const box of document.querySelectorAll(".scroll")) {
    const name = box.getAttribute("aria-label"), at = box.getBoundingClientRect();
    expect(at.left >= column.left - 1 && at.right <= column.right + 1, `${name}: the table is wider than its column`);
    const caption = box.querySelector("caption span");
    expect(!caption || caption.getBoundingClientRect().right <= column.right + 1, `${name}: the caption is cut off`);
    // Tables of up to eight columns are seen whole on a wide screen.
    const whole = innerWidth < 1000 || box.querySelectorAll("th").length > 8 || box.scrollWidth <= box.clientWidth + 1;
    expect(whole, `${name}: the table needs ${box.scrollWidth} of ${box.clientWidth} pixels`);
  }
  for (const panel of document.querySelectorAll("figure.pictures .panel")) {
    if (!panel.getClientRects().length) continue;
    const box = panel.closest("figure").querySelector(".readout"), at = panel.getBoundingClientRect();
    move(panel, at.left + at.width / 2, at.top + at.height / 2);
    expect(!box.hidden && /row \d+, column \d+/.test(box.textContent), `${panel.dataset.number}: no read-out`);
    panel.dispatchEvent(new PointerEvent("pointerleave"));
    expect(box.hidden, "a read-out stays");
  }
}

const move = (target, clientX, clientY) => target.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true }));

// The colour of a curve as the browser draws it: that of its line, or of its dots.
function colour(curve) {
  for (const mark of [curve, ...curve.querySelectorAll("*")]) {
    const { stroke, fill } = getComputedStyle(mark);
    const found = [stroke, fill].map((c) => c.match(/^rgb\((\d+), (\d+), (\d+)\)$/)).find((c, n) => c && (n === 0 || mark !== curve));
    if (found) return found.slice(1).map(Number);
  }
  return null;
}

// CIELAB; distances in it are the ΔE of 1976.
function lab(rgb) {
  const [r, g, b] = rgb.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const [x, y, z] = [(0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047, 0.2126 * r + 0.7152 * g + 0.0722 * b, (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883]
    .map((t) => t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

function plot(svg, name, frame, scale, expect) {
  const [left, top, right, bottom] = svg.dataset.area.split(" ").map(Number);
  const figure = svg.closest("figure"), box = figure.querySelector(".readout");
  const middle = [frame.left + scale * (left + right) / 2, frame.top + scale * (top + bottom) / 2];
  for (const key of svg.querySelectorAll(".key")) {
    expect(key.getBBox().y + key.getBBox().height <= top, `${name}: the legend covers the curves`);
  }
  for (const curve of svg.querySelectorAll(".curve")) {
    const at = curve.getBBox();
    const inside = at.x >= left - 5 && at.x + at.width <= right + 5 && at.y >= top - 5 && at.y + at.height <= bottom + 5;
    expect(inside, `${name}: curve ${curve.dataset.number} leaves the axes`);
  }
  const colours = [...svg.querySelectorAll(".curve")].slice(0, 8).map(colour).filter((c) => c);
  colours.forEach((a, i) => colours.slice(0, i).forEach((b, j) => {
    const apart = Math.hypot(...lab(a).map((x, n) => x - lab(b)[n]));
    expect(apart >= 30, `${name}: curves ${j} and ${i} are only ${apart.toFixed(1)} apart in CIELAB`);
  }));
  move(svg, ...middle);
  const shown = box.children.length;
  expect(!box.hidden && shown > 1, `${name}: no read-out`);
  expect(box.getBoundingClientRect().right <= innerWidth, `${name}: the read-out leaves the page`);
  expect(document.documentElement.scrollWidth <= innerWidth, `${name}: the read-out makes the page wider`);
  // A curve alone has no legend: its title says what it is.
  if (svg.querySelector(".key")) legend(svg, name, box, shown, middle, expect);
  svg.dispatchEvent(new PointerEvent("pointerleave"));
  expect(box.hidden, `${name}: the read-out stays`);
}

function legend(svg, name, box, shown, middle, expect) {
  const key = svg.querySelector(".key"), curve = svg.querySelector(`.curve[data-number="${key.dataset.number}"]`);
  key.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  expect(getComputedStyle(curve).display === "none" && key.getAttribute("aria-pressed") === "false", `${name}: a curve cannot be hidden`);
  move(svg, ...middle);
  expect(box.children.length < shown, `${name}: a hidden curve is still read out`);
  key.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  expect(getComputedStyle(curve).display !== "none", `${name}: a hidden curve cannot come back`);
}
