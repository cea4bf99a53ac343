// The list of runs and the selection, asked for again and again; only what changed is drawn.
"use strict";
const element = (id) => document.getElementById(id);
const MOST = 8;
// Milliseconds between two questions; a page that nobody sees asks nothing.
const PAUSE = 1500;
const chosen = [];
// The runs of the figures, in the order of their colours.
let coloured = [];
let runs = [];
// How many runs have a name.
const namesakes = new Map();
let versions = { runs: null, shown: null };
let drawn = "";

const show = (value) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  // Four digits, so that points stand below each other.
  const plain = size >= 1e-4 && size < 1e4 ? value.toPrecision(4) : String(Number(value.toPrecision(4)));
  return (value === 0 || (size >= 1e-4 && size < 1e6) ? plain : value.toExponential(3)).replaceAll("-", "−");
};
const time = (seconds) => {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  if (seconds < 5940) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
};
// With its folder if another run has the same name.
const title = (run) => {
  if (!run.name) return run.run;
  return namesakes.get(run.name) > 1 ? `${run.name} (${run.run})` : run.name;
};
const make = (tag, name, text) => {
  const made = document.createElement(tag);
  made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
};

// All words of the filter occur somewhere in what is shown of the run.
const matches = (run, words) => {
  const text = [run.run, run.name, run.task, run.method, run.status, run.note, ...run.tags, ...run.settings].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
};
const compare = (key) => (a, b) => {
  const [x, y] = [a[key], b[key]];
  if (x === null || y === null) return (x === null) - (y === null);
  if (key === "started") return x < y ? 1 : x > y ? -1 : 0;
  return x < y ? -1 : x > y ? 1 : 0;
};

// An item is made once and then changed, so that focus and scrolling stay.
const items = new Map();
const item = (run) => {
  let known = items.get(run.run);
  if (!known) {
    const row = document.createElement("li"), label = make("label", "run"), box = document.createElement("input");
    box.type = "checkbox";
    box.addEventListener("change", () => choose(run.run, box.checked));
    known = { row, label, box };
    for (const part of ["title", "loss", "what", "state", "tags", "done"]) known[part] = make("span", part);
    label.append(box, known.title, known.loss, known.what, known.state, known.tags, known.done);
    row.append(label);
    items.set(run.run, known);
  }
  known.title.textContent = title(run);
  known.title.title = run.run;
  known.loss.textContent = show(run.outer_loss);
  known.loss.title = "outer loss";
  const task = [...new Set(runs.map((other) => other.task))].length > 1 || !run.run.includes(run.task) ? [run.task] : [];
  const left = run.status === "running" && run.until && run.iterations ? (run.seconds / run.iterations) * (run.until - run.iterations) : null;
  const took = left === null ? time(run.seconds) : `about ${time(left)} left`;
  known.what.textContent = [...task, run.method, ...run.settings, took].filter((word) => word).join(" · ");
  const going = run.status === "running" || run.status === "unfinished";
  known.state.textContent = going && run.until ? `${run.status} ${run.iterations}/${run.until}` : run.status;
  known.state.className = `state ${run.status}`;
  known.state.title = run.because;
  known.tags.replaceChildren(...run.tags.map((tag) => make("span", "tag", tag)));
  known.tags.hidden = !run.tags.length;
  known.done.style.width = run.status === "running" && run.until ? `${(100 * run.iterations) / run.until}%` : "0";
  const place = chosen.indexOf(run.run);
  known.box.checked = place >= 0;
  known.box.disabled = place < 0 && chosen.length >= MOST;
  known.box.setAttribute("aria-label", `Show ${title(run)}`);
  // The colour of its curve; grey without one.
  const colour = coloured.indexOf(run.run);
  known.label.style.setProperty("--mark", colour < 0 ? "var(--axis)" : `var(--series-${colour})`);
  return known.row;
};

const list = () => {
  const words = element("filter").value.toLowerCase().split(/\s+/).filter((word) => word);
  const found = runs.filter((run) => matches(run, words)).sort(compare(element("sort").value));
  const rows = found.map(item), kept = element("runs");
  // Rows that are in their place stay there.
  rows.forEach((row, place) => {
    if (kept.children[place] !== row) kept.insertBefore(row, kept.children[place] || null);
  });
  while (kept.children.length > rows.length) kept.lastElementChild.remove();
  element("none").hidden = found.length > 0;
  element("clear").disabled = !chosen.length;
};

const choose = (name, wanted) => {
  const place = chosen.indexOf(name);
  if (wanted && place < 0 && chosen.length < MOST) chosen.push(name);
  if (!wanted && place >= 0) chosen.splice(place, 1);
  const query = chosen.map((run) => `run=${encodeURIComponent(run)}`).join("&");
  history.replaceState(null, "", query ? `#${query}` : location.pathname);
  list();
  selection();
};

// A name of a curve or a picture that was hidden stays hidden when its figure is drawn again.
const hidden = (figure) => [...figure.querySelectorAll(".wide .key.off")].map((key) => key.getAttribute("aria-label"));
const draw = (html) => {
  const old = new Map();
  for (const figure of element("shown").querySelectorAll("figure")) old.set(figure.querySelector("h2")?.textContent, hidden(figure));
  const next = document.createElement("div");
  next.innerHTML = html;
  // A configuration that is being read keeps its place.
  const scrolled = [...element("shown").querySelectorAll("pre,.scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
  element("shown").replaceChildren(...next.childNodes);
  element("shown").querySelectorAll("pre,.scroll").forEach((box, n) => {
    if (scrolled[n]) [box.scrollLeft, box.scrollTop] = scrolled[n];
  });
  for (const figure of element("shown").querySelectorAll("figure")) {
    enliven(figure);
    const off = old.get(figure.querySelector("h2")?.textContent) || [];
    for (const key of figure.querySelectorAll(".wide .key")) if (off.includes(key.getAttribute("aria-label"))) key.dispatchEvent(new Event("click"));
  }
};

// The answer to a question, or null if it is the one that is known.
const ask = async (path, version) => {
  const answer = await fetch(path, { cache: "no-store", headers: version ? { "If-None-Match": `"${version}"` } : {} });
  if (answer.status === 304) return null;
  if (!answer.ok) throw new Error((await answer.text()).trim() || `error ${answer.status}`);
  return { version: (answer.headers.get("ETag") || "").replaceAll('"', ""), body: await answer.text() };
};

const selection = async () => {
  const query = chosen.map((run) => `run=${encodeURIComponent(run)}`).join("&");
  element("hint").hidden = chosen.length > 0;
  element("links").replaceChildren(...chosen.map((name) => runs.find((run) => run.run === name)).filter((run) => run && run.report).map((run) => {
    const link = make("a", "", `Report of ${title(run)}`);
    link.href = `/report?run=${encodeURIComponent(run.run)}`;
    link.target = "_blank";
    link.rel = "noopener";
    return link;
  }));
  if (!query) {
    [drawn, versions.shown, coloured] = ["", null, []];
    element("shown").replaceChildren();
    return;
  }
  const answer = await ask(`/api/compare?${query}`, drawn === query ? versions.shown : null);
  // Another selection was made in the meantime.
  if (!answer || query !== chosen.map((run) => `run=${encodeURIComponent(run)}`).join("&")) return;
  [drawn, versions.shown] = [query, answer.version];
  draw(answer.body);
  const places = element("drawn").dataset.places.split(" ").filter((place) => place);
  coloured = places.map((place) => chosen[Number(place)]);
  list();
};

const look = async () => {
  const answer = await ask("/api/runs", versions.runs);
  if (answer) {
    versions.runs = answer.version;
    const found = JSON.parse(answer.body);
    runs = found.runs;
    namesakes.clear();
    for (const run of runs) namesakes.set(run.name, (namesakes.get(run.name) || 0) + 1);
    const names = new Set(runs.map((run) => run.run));
    for (const name of [...items.keys()]) if (!names.has(name)) items.delete(name);
    for (const name of chosen.filter((name) => !names.has(name))) chosen.splice(chosen.indexOf(name), 1);
    const going = runs.filter((run) => run.status === "running").length;
    const count = `${runs.length} ${runs.length === 1 ? "run" : "runs"} in ${found.folder}`;
    element("about").textContent = going ? `${count} · ${going} running` : count;
    document.title = going ? `(${going}) Runs` : "Runs";
    list();
  }
  await selection();
};

const repeat = async () => {
  if (!document.hidden) {
    try {
      await look();
      element("trouble").hidden = true;
    } catch (error) {
      element("trouble").textContent = error instanceof TypeError ? "The server does not answer; this page may be out of date." : String(error.message);
      element("trouble").hidden = false;
    }
  }
  setTimeout(repeat, PAUSE);
};

element("filter").addEventListener("input", list);
element("sort").addEventListener("change", list);
element("clear").addEventListener("click", () => {
  chosen.length = 0;
  choose("", false);
});
for (const [name, value] of new URLSearchParams(location.hash.slice(1))) if (name === "run" && chosen.length < MOST) chosen.push(value);
repeat();
