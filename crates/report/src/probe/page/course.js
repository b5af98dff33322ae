// SPDX-License-Identifier: MIT OR Apache-2.0
// One panel per kernel, density and number of active CPUs: clock above, rate below, over time.

const report = JSON.parse(document.getElementById("report").textContent);

const WIDTH = 1100, CLOCK = { top: 14, height: 130 }, RATE = { top: 164, height: 60 }, LEFT = 62, BOTTOM = 250;

/** Parts of the time that are worth a look, in ns; the block of the short repetitions is 500 us. */
const SPANS = [
  { name: "all", from: -50e3, to: Infinity },
  { name: "start", from: -20e3, to: 150e3 },
  { name: "around the block", from: -50e3, to: 1.5e6 },
];
let span = SPANS[0];

const rows = report.rows.filter((row) => row.course.length > 0);
const clocks = rows.flatMap((row) => row.course.map((point) => point.clock_khz)).filter(Number.isFinite);
const low = Math.floor(Math.min(...clocks) / 1e5) * 1e5 - 1e5;
const high = Math.ceil(Math.max(...clocks) / 1e5) * 1e5 + 1e5;

/** A path through the points that have a value; a gap where there is none. */
function path(points, x, y) {
  let text = "", open = false;
  for (const [at, value] of points) {
    if (!Number.isFinite(value)) { open = false; continue; }
    text += `${open ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    open = true;
  }
  return text;
}

function estimate(found, show) {
  return found ? `${show(found.value)} (${show(found.low)} to ${show(found.high)}, n = ${found.n})` : NONE;
}

function panel(row) {
  const points = row.course.filter((point) => point.at_ns >= span.from && point.at_ns <= span.to);
  const from = points[0].at_ns, to = points[points.length - 1].at_ns;
  const x = (ns) => LEFT + (WIDTH - LEFT) * (ns - from) / Math.max(1, to - from);
  const y = (khz) => CLOCK.top + CLOCK.height * (high - khz) / (high - low);
  const z = (frac) => RATE.top + RATE.height * (1.1 - Math.min(frac, 1.1)) / 1.1;
  const inBlock = points.filter((point) => Number.isFinite(point.rate_frac));
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${BOTTOM}`, role: "img", "aria-label": `${row.kernel}: clock over time` });
  if (inBlock.length > 0) {
    const start = x(inBlock[0].at_ns), end = x(inBlock[inBlock.length - 1].at_ns);
    svg.append(make("rect", { x: start, y: CLOCK.top, width: Math.max(1, end - start), height: RATE.top + RATE.height - CLOCK.top, fill: "var(--panel)" }));
  }
  for (let khz = low; khz <= high; khz += tickStep(high - low, 5)) {
    svg.append(make("line", { x1: LEFT, x2: WIDTH, y1: y(khz), y2: y(khz), stroke: "var(--grid)" }));
    svg.append(make("text", { x: LEFT - 6, y: y(khz) + 4, "text-anchor": "end", class: "soft" }, clock(khz)));
  }
  for (const frac of [0, 0.5, 1]) {
    svg.append(make("line", { x1: LEFT, x2: WIDTH, y1: z(frac), y2: z(frac), stroke: "var(--grid)" }));
    svg.append(make("text", { x: LEFT - 6, y: z(frac) + 4, "text-anchor": "end", class: "soft" }, percent(frac, 0)));
  }
  const step = tickStep(to - from, 8);
  for (let ns = Math.ceil(from / step) * step; ns <= to; ns += step) {
    svg.append(make("text", { x: x(ns), y: BOTTOM - 4, "text-anchor": "middle", class: "soft" }, ns === 0 ? "0" : time(ns)));
  }
  const line = (values, to, colour) => make("path", { d: path(values, x, to), fill: "none", stroke: colour, "stroke-width": 1.6 });
  svg.append(line(points.map((point) => [point.at_ns, point.clock_khz]), y, "var(--accent)"));
  svg.append(line(points.map((point) => [point.at_ns, point.rate_frac]), z, "var(--l2)"));
  const density = row.one_in === 1 ? "dense" : `one in ${row.one_in}`;
  const facts = [
    ["settled", estimate(row.steady_khz, clock)],
    ["throttle", estimate(row.throttle_ns, time)],
    ["halt", estimate(row.halt_ns, time)],
    ["full rate after", estimate(row.full_ns, time)],
    ["start costs", estimate(row.lower_cost_ns, time)],
    ["clock returns after the last", estimate(row.relax_from_last_ns, time)],
    ["break-even", time(row.break_even_ns)],
  ].filter(([, text]) => text !== NONE).map(([name, text]) => `${name} ${text}`);
  return make("div", { class: "panel" },
    make("h3", {}, `${row.kernel}, ${density}, ${row.active} active`),
    make("p", {}, facts.join("; ")),
    svg,
    row.notes.length > 0 ? make("p", { class: "soft" }, row.notes.join("; ")) : null);
}

function draw() {
  const buttons = SPANS.map((one) => make("button", {
    "aria-pressed": String(one === span), onclick: () => { span = one; draw(); } }, one.name));
  document.getElementById("spans").replaceChildren(...buttons);
  const empty = make("p", { class: "note" }, "No cell has enough quiet repetitions.");
  document.getElementById("courses").replaceChildren(...(rows.length > 0 ? rows.map(panel) : [empty]));
}

document.getElementById("about").textContent =
  `${report.repetitions} repetitions, ${report.quiet} quiet, seed ${report.seed}` +
  (report.partial ? `. Partial: ${report.partial}` : "");
document.getElementById("method").append(
  make("p", {}, "Figures are medians with their 95 % intervals from order statistics, over repetitions that began in the quiet bin of the clock."),
  make("ul", {}, ...report.unknown.map((what) => make("li", {}, `Not known: ${what}`))));
draw();
