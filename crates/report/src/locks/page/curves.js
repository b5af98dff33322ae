// SPDX-License-Identifier: MIT OR Apache-2.0
// One panel per machine: a figure over the section's size, a line per strategy.

const report = JSON.parse(document.getElementById("report").textContent);

const WIDTH = 1100, HEIGHT = 330, LEFT = 74, RIGHT = 14, TOP = 26, BOTTOM = 34;

/** Cycles in words. */
function cycles(value) {
  for (const [unit, size] of [["M", 1e6], ["k", 1e3]]) {
    if (value >= size) return digits(value / size, 3) + "\u00a0" + unit;
  }
  return digits(value, 3);
}

/** Energy of 1,000 cycles of the section, so that small and large sections fit in one chart. */
const perThousand = (point, value) => value === null || value === undefined ? null : value / point.section_cycles * 1e3;
const joules = (nj) => nj === null ? NONE : nj >= 1e3 ? digits(nj / 1e3, 3) + "\u00a0\u00b5J" : digits(nj, 3) + "\u00a0nJ";

const FIGURES = [
  { name: "Effective clock", of: (point) => point.effective_khz, show: clock, log: false,
    says: "Cycles of the section over the time that it and its lock took." },
  { name: "Energy", of: (point) => perThousand(point, point.energy_nj), show: joules, log: true,
    says: "Energy of the package for 1,000 cycles of the section." },
  { name: "CPU time", of: (point) => perThousand(point, point.cpu_time_ns), show: time, log: true,
    says: "CPU time of all threads for 1,000 cycles of the section; spinning counts." },
];
let figure = FIGURES[0];

const names = [...new Set(report.sweeps.flatMap((sweep) => sweep.points.map((point) => point.strategy)))];
const COLOURS = ["var(--soft)", "var(--accent)", "var(--l1)", "var(--l2)", "var(--l3)", "var(--good)", "var(--l0)", "var(--l5)"];
const colour = (name) => COLOURS[names.indexOf(name) % COLOURS.length];

/** From values to pixels, and the values at which a line is drawn. */
function scale(values) {
  const most = Math.max(...values), least = Math.min(...values);
  const place = (frac) => HEIGHT - BOTTOM - frac * (HEIGHT - TOP - BOTTOM);
  if (!figure.log) {
    const step = tickStep(most, 5), top = Math.ceil(most / step) * step;
    const ticks = Array.from({ length: Math.round(top / step) + 1 }, (_, at) => at * step);
    return { y: (value) => place(value / top), ticks };
  }
  const from = Math.floor(Math.log10(least)), to = Math.max(from + 1, Math.ceil(Math.log10(most)));
  const ticks = Array.from({ length: to - from + 1 }, (_, at) => 10 ** (from + at));
  return { y: (value) => place((Math.log10(value) - from) / (to - from)), ticks };
}

function axes(svg, x, y, ticks, sizes) {
  for (const value of ticks) {
    svg.append(make("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), stroke: "var(--grid)" }));
    svg.append(make("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end", class: "soft" }, figure.show(value)));
  }
  for (const size of sizes) {
    svg.append(make("text", { x: x(size), y: HEIGHT - 10, "text-anchor": "middle", class: "soft" }, cycles(size)));
  }
}

/** The lines of one strategy between points that have a value, and its points. */
function strategy(svg, sweep, name, x, y) {
  let text = "", open = false;
  for (const point of sweep.points.filter((one) => one.strategy === name)) {
    const value = figure.of(point);
    if (!Number.isFinite(value)) { open = false; continue; }
    const at = [x(point.section_cycles), y(value)];
    text += `${open ? "L" : "M"}${at[0].toFixed(1)} ${at[1].toFixed(1)}`;
    open = true;
    svg.append(withTip(
      make("rect", { class: "point", x: at[0] - 4, y: at[1] - 4, width: 8, height: 8, rx: 4, fill: colour(name) }),
      `${name}, ${cycles(point.section_cycles)} cycles`,
      [["effective clock", clock(point.effective_khz)], ["section to section", time(point.time_ns)],
        ["CPU time", time(point.cpu_time_ns)], ["energy", joules(point.energy_nj)], ["sections", number(point.sections)]]));
  }
  if (text) svg.append(make("path", { d: text, fill: "none", stroke: colour(name), "stroke-width": 1.8 }));
}

/** Where strategies begin to beat spinning, each named a little higher than the one before. */
function breakEvens(svg, sweep, x, sizes) {
  const shown = sweep.break_evens.filter((even) => even.section_cycles !== null)
    .filter((even) => even.section_cycles >= sizes[0] && even.section_cycles <= sizes[sizes.length - 1]);
  shown.forEach((even, at) => {
    const place = x(even.section_cycles), foot = HEIGHT - BOTTOM;
    svg.append(make("line", { class: "even", x1: place, x2: place, y1: TOP, y2: foot, stroke: colour(even.strategy), "stroke-dasharray": "3 4" }));
    svg.append(make("text", { x: place + 4, y: foot - 6 - 14 * at, class: "soft" }, `${even.strategy} ${cycles(even.section_cycles)}`));
  });
}

function panel(sweep) {
  const sizes = [...new Set(sweep.points.map((point) => point.section_cycles))].sort((a, b) => a - b);
  const values = sweep.points.map(figure.of).filter(Number.isFinite);
  const title = sweep.model ? `Model of ${sweep.model}` : "This machine, measured";
  const about = `${sweep.threads} threads` + (sweep.pstates ? `; P-states: ${sweep.pstates}` : "");
  const box = make("div", { class: "panel" }, make("h3", {}, title), make("p", {}, about));
  if (values.length === 0) {
    box.append(make("p", { class: "note" }, `${figure.name}: not known on this machine.`));
    return box;
  }
  const [from, to] = [Math.log10(sizes[0]), Math.log10(sizes[sizes.length - 1])];
  const x = (size) => LEFT + 12 + (WIDTH - LEFT - RIGHT - 24) * (to > from ? (Math.log10(size) - from) / (to - from) : 0.5);
  const { y, ticks } = scale(values);
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${figure.name} over the size of the section` });
  axes(svg, x, y, ticks, sizes);
  if (figure === FIGURES[0]) breakEvens(svg, sweep, x, sizes);
  for (const name of names) strategy(svg, sweep, name, x, y);
  box.append(svg);
  return box;
}

function draw() {
  const buttons = FIGURES.map((one) => make("button", {
    "aria-pressed": String(one === figure), onclick: () => { figure = one; draw(); } }, one.name));
  document.getElementById("figures").replaceChildren(...buttons, make("span", { class: "soft" }, figure.says));
  document.getElementById("curves").replaceChildren(...report.sweeps.map(panel));
}

document.getElementById("legend").append(...names.map((name) =>
  make("span", {}, make("i", { class: "thin", style: `background: ${colour(name)}` }), name)));
document.getElementById("about").textContent = "Sections are counted in core cycles: a higher clock makes them shorter.";
document.getElementById("method").append(make("p", {},
  "In a model the effective clock is TURBO's, without the wait for the lock; measured, it is the section's cycles over the time from one section to the next."));
draw();
