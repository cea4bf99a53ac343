// Read-outs under the pointer, and a legend that hides curves. The page is complete without it.
"use strict";
const enliven = (figure) => {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const box = document.createElement("div");
  box.className = "readout";
  box.hidden = true;
  box.setAttribute("aria-hidden", "true");
  figure.append(box);
  figure.classList.add("live");
  const hidden = new Set();
  const all = (name, number) => figure.querySelectorAll(`.${name}[data-number="${number}"]`);

  // Four digits, and powers of ten as everybody can read them.
  const show = (v) => {
    if (v === null || v === undefined) return "–";
    const size = Math.abs(v);
    const plain = v === 0 || (size >= 1e-4 && size < 1e6);
    return (plain ? String(Number(v.toPrecision(4))) : v.toExponential(3)).replaceAll("-", "−");
  };
  const line = (colour, name, value) => {
    const row = document.createElement("div");
    if (colour) {
      const sample = document.createElement("i");
      sample.style.background = colour;
      row.append(sample);
    }
    const label = document.createElement("span");
    label.textContent = name;
    const number = document.createElement("b");
    number.textContent = value;
    row.append(label, number);
    return row;
  };
  // Beside the pointer, on the side with more room, and never outside the figure; where both sides are too narrow, above.
  const put = (rows, event) => {
    box.replaceChildren(...rows);
    box.hidden = false;
    const frame = figure.getBoundingClientRect();
    const x = event.clientX - frame.left, y = event.clientY - frame.top;
    const left = x > frame.width / 2 ? x - box.offsetWidth - 16 : x + 16;
    const kept = Math.max(0, Math.min(left, frame.width - box.offsetWidth));
    const top = kept === left ? y - 20 : y - box.offsetHeight - 18;
    box.style.left = `${kept}px`;
    box.style.top = `${Math.max(0, Math.min(top, frame.height - box.offsetHeight))}px`;
  };
  const place = (svg, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());

  const toggle = (number) => {
    const off = !hidden.delete(number);
    if (off) hidden.add(number);
    for (const curve of all("curve", number)) curve.classList.toggle("off", off);
    for (const key of all("key", number)) {
      key.classList.toggle("off", off);
      key.setAttribute("aria-pressed", String(!off));
    }
  };
  for (const key of figure.querySelectorAll(".key")) {
    const number = Number(key.dataset.number);
    // Inside an image a reader is told of nothing, so the image becomes a group.
    key.closest("svg").setAttribute("role", "group");
    key.setAttribute("tabindex", "0");
    key.setAttribute("role", "button");
    key.setAttribute("aria-pressed", "true");
    key.setAttribute("aria-label", `Show ${data.curves[number].name}`);
    key.addEventListener("click", () => toggle(number));
    key.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle(number);
    });
    const others = (pale) => {
      for (const curve of figure.querySelectorAll(".curve")) {
        curve.classList.toggle("pale", pale && Number(curve.dataset.number) !== number && !hidden.has(number));
      }
    };
    key.addEventListener("pointerenter", () => others(true));
    key.addEventListener("pointerleave", () => others(false));
  }

  for (const svg of figure.querySelectorAll("svg[data-area]")) {
    const [left, top, right, bottom] = svg.dataset.area.split(" ").map(Number);
    const scale = (text, from, to) => {
      const [low, high, log] = text.split(" ").map(Number);
      return (v) => {
        if (v === null || (log && v <= 0)) return NaN;
        return from + (((log ? Math.log10(v) : v) - low) / (high - low)) * (to - from);
      };
    };
    const across = scale(svg.dataset.x, left, right), up = scale(svg.dataset.y, bottom, top);
    const mark = (tag, attributes) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      return element;
    };
    const hair = mark("g", { "pointer-events": "none", visibility: "hidden" });
    svg.append(hair);
    const leave = () => { box.hidden = true; hair.setAttribute("visibility", "hidden"); };
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("pointermove", (event) => {
      const at = place(svg, event);
      if (at.x < left - 4 || at.x > right + 4 || at.y < top - 4 || at.y > bottom + 4) return leave();
      // Of each curve the point nearest in x; of those that are near enough, the ones nearest in y.
      let found = [];
      data.curves.forEach((curve, number) => {
        if (hidden.has(number)) return;
        let best = null;
        for (const [x, y] of curve.points) {
          const px = across(x), py = up(y), far = Math.abs(px - at.x);
          if (!Number.isNaN(px + py) && (!best || far < best.far)) best = { far, px, py, x, y, series: curve.series, name: curve.name };
        }
        if (best) found.push(best);
      });
      if (!found.length) return leave();
      const nearest = found.reduce((a, b) => (b.far < a.far ? b : a));
      found = found.filter((p) => Math.abs(p.px - nearest.px) < 3);
      found.sort((a, b) => Math.abs(a.py - at.y) - Math.abs(b.py - at.y));
      found = found.slice(0, 8).sort((a, b) => a.py - b.py);
      const colour = (p) => `var(--series-${p.series % 8})`;
      hair.replaceChildren(
        mark("line", { x1: nearest.px, x2: nearest.px, y1: top, y2: bottom, stroke: "var(--axis)" }),
        ...found.map((p) => mark("circle", { cx: p.px, cy: p.py, r: 4, fill: colour(p), stroke: "var(--surface)" })),
      );
      hair.setAttribute("visibility", "visible");
      put([line(null, data.x || "x", show(nearest.x)), ...found.map((p) => line(colour(p), p.name, show(p.y)))], event);
    });
  }

  for (const group of figure.querySelectorAll(".panel")) {
    const panel = data.panels[Number(group.dataset.number)];
    if (!panel.values.length) continue;
    group.addEventListener("pointerleave", () => { box.hidden = true; });
    group.addEventListener("pointermove", (event) => {
      const at = place(group.ownerSVGElement, event), area = group.getBBox();
      const index = (p, size, count) => Math.max(0, Math.min(count - 1, Math.floor((p / size) * count)));
      const row = index(at.y - area.y, area.height, panel.rows);
      const column = index(at.x - area.x, area.width, panel.columns);
      const value = show(panel.values[row * panel.columns + column]);
      put([line(null, `${panel.title ? `${panel.title}, ` : ""}row ${row + 1}, column ${column + 1}`, value)], event);
    });
  }
};
for (const figure of document.querySelectorAll("figure")) enliven(figure);
