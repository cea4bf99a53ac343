// Uses the page as a reader would, and tells the page around it what failed.
"use strict";
(async () => {
  const failures = [];
  addEventListener("error", (event) => failures.push(`error: ${event.message}`));
  addEventListener("unhandledrejection", (event) => failures.push(`rejected: ${event.reason}`));
  addEventListener("securitypolicyviolation", (event) => failures.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
  const all = (selector) => [...document.querySelectorAll(selector)];
  const until = async (what, holds) => {
    for (let n = 0; n < 200; n++) {
      if (holds()) return true;
      await new Promise((done) => setTimeout(done, 50));
    }
    failures.push(`in vain: ${what}`);
    return false;
  };
  const check = (what, holds) => holds || failures.push(what);
  const row = (text) => all("#runs li").find((item) => item.textContent.includes(text));
  const visible = () => (innerWidth > 640 ? ".wide" : ".narrow");

  await until("five runs in the list", () => all("#runs li").length === 5);
  check("the running run is not marked", row("running")?.textContent.includes("running 10/60"));
  check("the time left is missing", row("running")?.textContent.includes(" left"));
  check("the count is wrong", document.getElementById("about").textContent === "5 runs in runs · 1 running");
  check("the diverged run is not marked", all(".state.diverged").length === 1);

  // The filter and the order.
  const filter = document.getElementById("filter");
  const type = (text) => { filter.value = text; filter.dispatchEvent(new Event("input")); };
  type("baseline synth1d");
  check("the filter finds another number of runs", all("#runs li").length === 1 && row("baseline"));
  type("no such run");
  check("nothing is said of an empty list", !document.getElementById("none").hidden);
  type("");
  const sort = document.getElementById("sort");
  sort.value = "run";
  sort.dispatchEvent(new Event("change"));
  check("the order is not that of folders", all("#runs li")[0].textContent.includes("digits"));

  // One run: λ as pictures, tables, the configuration.
  row("digits").querySelector("input").click();
  await until("λ as pictures", () => all("#shown figure.pictures svg .panel").length >= 10);
  check("no configuration", all("#shown pre").length === 1);
  check("no link to the report", all("#links a").length === 1);
  row("digits").querySelector("input").click();
  await until("an empty selection", () => all("#shown section").length === 0);

  // Two runs, one of which grows.
  row("fast one").querySelector("input").click();
  row("running").querySelector("input").click();
  const plot = () => all("#shown figure.plot").find((figure) => figure.querySelector("h2").textContent === "Outer loss");
  await until("a curve for each run", () => plot()?.querySelectorAll(`${visible()} .key`).length === 2);
  check("the note is missing", document.getElementById("shown").textContent.includes("the rate of the paper"));
  check("the address does not name the selection", location.hash.includes("run=fast"));
  const points = () => JSON.parse(plot().querySelector("script").textContent).curves.find((curve) => curve.name === "live").points.length;
  check(`the running run has ${points()} points`, points() === 10);
  // The legend hides a curve, also after an update.
  const key = () => plot().querySelector(".wide .key");
  key().dispatchEvent(new Event("click"));
  check("a click on the legend hides nothing", key().classList.contains("off"));
  await fetch("/step?25");
  await until("the curve follows the run", () => points() === 25);
  await until("the list follows the run", () => row("running 25/60"));
  check("a hidden curve came back with the update", key().classList.contains("off"));
  key().dispatchEvent(new Event("click"));
  await fetch("/step?40");
  await until("the curve follows again", () => points() === 40);

  // What a reader sees.
  check(`the page is ${document.documentElement.scrollWidth} wide`, document.documentElement.scrollWidth <= innerWidth);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const background = getComputedStyle(document.body).backgroundColor;
  check(`the background is ${background}`, background === (dark ? "rgb(21, 24, 29)" : "rgb(255, 255, 255)"));
  for (const box of all(".run,.tools input,.tools select,.tools button")) {
    const frame = box.getBoundingClientRect();
    check(`${box.className || box.id} leaves the window`, frame.left >= 0 && frame.right <= innerWidth);
  }
  for (const text of all(".run .what,.run .title,.subtitle")) check("a text has no size", text.getBoundingClientRect().height > 8);
  check("something is wrong", document.getElementById("trouble").hidden);
  parent.postMessage({ failures, scheme: dark ? "dark" : "light", width: innerWidth }, "*");
})();
