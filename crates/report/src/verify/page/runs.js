// SPDX-License-Identifier: MIT OR Apache-2.0
// The verdict, a chart for each figure that is compared, and the table of runs.

const report = JSON.parse(document.getElementById("report").textContent);

const WIDTH = 1100, LEFT = 110, RIGHT = 1050, ROW = 52, TOP = 12, SPREAD = 7;
const SIDES = [["A", report.a, "var(--victim)"], ["B", report.b, "var(--accent)"]];

/** With five digits: one per cent has to be seen. */
function fine(ns) {
  const [scale, unit] = ns >= 1e8 ? [1e9, "s"] : ns >= 1e5 ? [1e6, "ms"] : [1e3, "\u00b5s"];
  return `${digits(ns / scale, 5)}\u00a0${unit}`;
}

const mhz = (khz) => `${Math.round(khz / 1000).toLocaleString("en-GB")}\u00a0MHz`;
const plain = (value) => digits(value, 5);

const figure = report.simulated ? report.simulated.figure : null;
const isTime = figure === null ? report.metric === "time" : figure !== "throughput";
const FIGURES = [
  { name: report.metric, effect: report.effect, of: (run) => run.metric ?? run.time_ns, show: isTime ? fine : plain },
  figure === "cpu-time" ? null : { name: figure === null ? "CPU time" : "CPU time per unit of work", effect: report.cpu_time,
    of: (run) => run.cpu_time_ns, show: fine },
  report.clock ? { name: "clock", effect: report.clock, of: (run) => run.clock_khz, show: mhz } : null,
].filter((one) => one !== null);

const CLASSES = { better: "up", worse: "down", "no-difference": "soft", "not-enough-runs": "soft" };
const WORDS = { better: "better", worse: "worse", "no-difference": "no difference found", "not-enough-runs": "not enough runs for a verdict" };

/** The end of an interval; an open one has none. */
const bound = (pct) => pct === null ? "unbounded" : signed(pct);

function words({ effect }) {
  return `${WORDS[effect.verdict]}: ${bound(effect.change_pct)}, 95 % interval ${bound(effect.low_pct)} to ${bound(effect.high_pct)}`;
}

/** From the least to the greatest of runs and interval, with some room. */
function domain({ effect, of }) {
  const at = (pct) => effect.a * (1 + pct / 100);
  const ends = [effect.low_pct, effect.high_pct, 0, report.margin_pct, -report.margin_pct].filter(Number.isFinite).map(at);
  const values = [...ends, ...SIDES.flatMap(([, side]) => side.samples.map(of))].filter(Number.isFinite);
  const low = Math.min(...values), high = Math.max(...values);
  const room = 0.04 * (high - low) || 0.01 * Math.abs(high) || 1;
  return [low - room, high + room];
}

function tipOf(one, name, run) {
  const rows = FIGURES.map((figure) => [figure.name, figure.show(figure.of(run))]);
  return [`run ${run.order + 1}, ${name}`, run.seed === null ? rows : [...rows, ["seed", String(run.seed)]]];
}

/** The runs of one kind: a point each, apart from its neighbours, and the median. */
function points(one, [name, side, colour], median, y, x) {
  const dots = side.samples.map((run, at) => withTip(make("rect", {
    class: `run ${name}`, x: x(one.of(run)) - 4, y: y + SPREAD * ((at % 5) - 2) - 4, width: 8, height: 8, rx: 4, fill: colour, "fill-opacity": 0.75,
  }), ...tipOf(one, name, run)));
  const label = make("text", { x: LEFT - 12, y: y + 5, "text-anchor": "end" }, name);
  const middle = make("rect", { class: "median", x: x(median) - 1.5, y: y - 22, width: 3, height: 44, fill: "var(--ink)" });
  return make("g", {}, label, middle, ...dots);
}

/** The change from A to B on the same axis, where A's median is 0 %. */
function change({ effect }, y, x, low, high) {
  const at = (pct, end) => pct === null ? end : x(effect.a * (1 + pct / 100));
  const from = at(effect.low_pct, LEFT), to = at(effect.high_pct, RIGHT);
  const inside = [-report.margin_pct, report.margin_pct].map((pct) => at(pct));
  const colour = { up: "var(--good)", down: "var(--bad)", soft: "var(--soft)" }[CLASSES[effect.verdict]];
  const bar = (left, top, width, height) => make("rect", { x: left, y: top, width: Math.max(1, width), height, fill: colour });
  return make("g", {},
    make("rect", { class: "margin", x: inside[0], y: y - 20, width: inside[1] - inside[0], height: 40, fill: "var(--grid)" }),
    make("text", { x: LEFT - 12, y: y + 5, "text-anchor": "end" }, "B against A"),
    make("rect", { class: "interval", x: from, y: y - 1.5, width: Math.max(1, to - from), height: 3, fill: colour }),
    bar(from, y - 7, 2, 14), bar(to - 2, y - 7, 2, 14), bar(at(effect.change_pct, x(effect.b)) - 4, y - 8, 8, 16));
}

/** Values under the runs, per cents under the change. */
function axes(one, x, low, high, bottom) {
  const lines = [];
  const tick = (at, y, text) => [
    make("line", { x1: at, x2: at, y1: y - 12, y2: y - 17, stroke: "var(--line)" }),
    make("text", { x: at, y, "text-anchor": "middle", class: "soft" }, text)];
  const step = tickStep(high - low, 6);
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) lines.push(...tick(x(value), bottom.values, short(one.show(value))));
  const pct = (value) => 100 * (value / one.effect.a - 1);
  const part = tickStep(pct(high) - pct(low), 6);
  for (let at = Math.ceil(pct(low) / part) * part; at <= pct(high); at += part) {
    lines.push(...tick(x(one.effect.a * (1 + at / 100)), bottom.percents, Math.abs(at) < part / 2 ? "0\u00a0%" : `${at > 0 ? "+" : "\u2212"}${short(digits(Math.abs(at), 3))}\u00a0%`));
  }
  return lines;
}

function panel(one) {
  const [low, high] = domain(one);
  const x = (value) => LEFT + (RIGHT - LEFT) * (value - low) / (high - low);
  const [a, b] = [TOP + ROW / 2, TOP + 1.5 * ROW];
  const bottom = { values: TOP + 2 * ROW + 18, percents: TOP + 3 * ROW + 44 };
  const zero = x(one.effect.a), middle = TOP + 2.5 * ROW + 24;
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${bottom.percents + 8}`, role: "img", "aria-label": `${one.name}: all runs of A and B` },
    change(one, middle, x, low, high),
    make("line", { x1: zero, x2: zero, y1: TOP, y2: middle + 22, stroke: "var(--soft)", "stroke-dasharray": "3 4" }),
    points(one, SIDES[0], one.effect.a, a, x), points(one, SIDES[1], one.effect.b, b, x), ...axes(one, x, low, high, bottom));
  return make("div", { class: "panel" }, make("h3", {}, one.name),
    make("p", {}, `A ${one.show(one.effect.a)}, B ${one.show(one.effect.b)}. `, make("span", { class: CLASSES[one.effect.verdict] }, words(one))),
    make("div", { class: "scroll" }, svg));
}

function notes() {
  const lines = report.partial ? [`Partial: ${report.partial}`] : [];
  for (const [name, side] of SIDES) {
    if (side.around_ns !== null) lines.push(`Each run of ${name} took ${time(side.around_ns)} more to load and unload the scheduler, which is not compared.`);
    if (side.failure !== null) lines.push(`${side.failed} of ${report.runs} runs of ${name} failed and are not used; the first: ${side.failure}`);
  }
  if (report.no_clock) lines.push(`The clock is not known: ${report.no_clock}`);
  return lines;
}

function about() {
  const { simulated, runs, seed } = report;
  if (!simulated) return `${runs} runs of each in random order, seed ${seed}`;
  const variant = simulated.variant === null ? "" : `, variant ${simulated.variant}`;
  return `Simulated: load ${simulated.load} of scenario ${simulated.scenario}${variant} on a model of ${simulated.machine}, ${runs} runs of each `
    + `with a seed of its own, drawn by seed ${seed}; nothing was measured`;
}

document.getElementById("about").textContent = about();
put("input", ...SIDES.map(([name, side]) => make("div", {}, make("dt", {}, name), make("dd", {}, side.command))));
const verdict = document.getElementById("verdict");
verdict.classList.add(CLASSES[report.effect.verdict]);
verdict.textContent = (report.simulated ? "Of simulated runs: " : "") + report.verdict;
const notices = notes();
document.getElementById("notes").hidden = notices.length === 0;
put("notes", ...notices.map((line) => make("li", {}, line)));
put("figures", ...FIGURES.map(panel));
const runs = SIDES.flatMap(([name, side]) => side.samples.map((run) => ({ name, run }))).sort((one, two) => one.run.order - two.run.order);
const hasSeeds = runs.some(({ run }) => run.seed !== null);
put("runs", tableOf([
  ["Run", false, ({ run }) => String(run.order + 1)],
  ["Kind", true, ({ name }) => name],
  ...FIGURES.map((one) => [one.name, false, ({ run }) => one.show(one.of(run))]),
  ...(hasSeeds ? [["Seed", false, ({ run }) => run.seed === null ? NONE : String(run.seed)]] : []),
], runs));
document.getElementById("method").append(make("p", {},
  "The test is the rank-sum test: a command compared with itself is reported as different in at most 5 of 100 cases. "
  + `${report.smaller_is_better ? "Lower" : "Higher"} is better for ${report.metric}.`));
